#include "agent/task/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "os/process_stat.h"

namespace worker::task {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// What a fresh process expects: no signal blocked or ignored.
void reset_signals() {
  struct sigaction defaults {};
  defaults.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &defaults, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::string words(const char* what, const std::string& which, int error) {
  return std::string(what) + " " + which + ": " + std::strerror(error);
}

// What failed in the child, and why.
struct Failure {
  int step = 0;
  int error = 0;
};

std::string explain(const RankProcess::Plan& plan, const Failure& failure) {
  switch (failure.step) {
    case 1:
      return words("cannot enter the working folder", plan.working_folder, failure.error);
    case 2:
      return words("cannot open the log", plan.log.string(), failure.error);
    default:
      return words("cannot execute", plan.argv.front(), failure.error);
  }
}

[[noreturn]] void be_rank(const RankProcess::Plan& plan, const std::vector<char*>& argv, const std::vector<char*>& env,
                          int told, pid_t task) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != task) ::_exit(127);  // the task has died before that
  reset_signals();
  Failure failure{1, 0};
  if (::chdir(plan.working_folder.c_str()) == 0) {
    failure.step = 2;
    const int log = ::open(plan.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0640);
    const int null = ::open("/dev/null", O_RDONLY);
    if (log >= 0 && null >= 0 && ::dup2(null, 0) >= 0 && ::dup2(log, 1) >= 0 && ::dup2(log, 2) >= 0) {
      failure.step = 3;
      ::dup2(told, 3);
      ::fcntl(3, F_SETFD, FD_CLOEXEC);
      told = 3;
      ::close_range(4, ~0U, 0);
      ::execvpe(argv[0], argv.data(), env.data());
    }
  }
  failure.error = errno;
  [[maybe_unused]] const auto wrote = ::write(told, &failure, sizeof failure);
  ::_exit(127);
}

}  // namespace

RankProcess::RankProcess(const Plan& plan) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(words("cannot make", "a pipe", errno));
  std::vector<std::string> environment;
  for (const auto& [name, value] : plan.environment) environment.push_back(name + "=" + value);
  const auto argv = pointers(plan.argv), env = pointers(environment);
  const auto task = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error(words("cannot start", "a process", errno));
  if (pid_ == 0) be_rank(plan, argv, env, ends[1], task);
  ::setpgid(pid_, pid_);
  ::close(ends[1]);
  Failure failure;
  ssize_t count;
  do {
    count = ::read(ends[0], &failure, sizeof failure);
  } while (count < 0 && errno == EINTR);
  ::close(ends[0]);
  if (count != sizeof failure) return;
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  throw std::runtime_error(explain(plan, failure));
}

void RankProcess::signal(int number) const {
  if (pid_ > 1) ::kill(-pid_, number);
}

bool RankProcess::stopped() const {
  try {
    const auto stat = os::read_stat(pid_);
    return stat && stat->is_stopped();
  } catch (const std::exception&) {
    return false;  // nobody can say so
  }
}

}  // namespace worker::task
