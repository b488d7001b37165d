#include "agent/process/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "base/fd.h"

namespace agent::process {
namespace {

constexpr std::chrono::minutes kLongest{10};  // for processes that even SIGKILL does not end
constexpr int kLookForAgentMs = 250;          // should the kernel not tell of the agent's end

void stand_apart() {
  ::setsid();
  ::prctl(PR_SET_NAME, "muster-keeper");
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM}) {
    ::sigaction(number, &ignore, nullptr);
  }
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(null, fd);
}

}  // namespace

void keep_rank(const RankMark& mark) {
  const auto agent = ::getpid();
  const base::Fd watched(static_cast<int>(::syscall(SYS_pidfd_open, agent, 0)));
  if (!watched || ::fork() != 0) return;
  stand_apart();
  const int kept = ::fcntl(watched.get(), F_DUPFD_CLOEXEC, 3);
  ::dup3(kept, 3, O_CLOEXEC);
  ::close_range(4, ~0U, 0);
  pollfd end{3, POLLIN, 0};
  while (::getppid() == agent && ::poll(&end, 1, kLookForAgentMs) != 1) {
  }
  end_rank(mark, kLongest);
  ::_exit(0);
}

}  // namespace agent::process
