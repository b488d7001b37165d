#include "agent/program/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <system_error>
#include <utility>

#include "agent/protocol/attempt_folder.h"
#include "base/durable_file.h"

namespace agent::program {
namespace {

using namespace protocol;

constexpr std::chrono::hours kGiveUpEnding{1};

/// Goes to the background: a child of nobody in a session of its own, unmoved by signals to a terminal or a service.
void detach() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2}) {
    ::sigaction(number, &ignore, nullptr);
  }
  const auto pid = ::fork();
  if (pid < 0) throw_errno("cannot go to the background");
  if (pid > 0) ::_exit(0);
  ::setsid();
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw_errno("cannot become the one who inherits orphans");
}

/// The report to the executor, if one has started this process.
class Report {
 public:
  explicit Report(bool wanted) : pipe_(wanted ? kReportFd : -1) {
    if (wanted) ::fcntl(kReportFd, F_SETFD, FD_CLOEXEC);
  }
  void say(const std::string& line) {
    if (!pipe_) return;
    [[maybe_unused]] const auto count = ::write(pipe_.get(), line.data(), line.size());
  }
  void failed(const std::string& reason, StartFailure kind) {
    std::fprintf(stderr, "muster-agent: %s\n", reason.c_str());
    say(failed_line(kind, reason));
  }
  void close() { pipe_.reset(); }

 private:
  base::Fd pipe_;
};

StartFailure kind_of(int error, bool retryable) {
  if (base::lacks_descriptors(error)) return StartFailure::kNoDescriptors;
  if (base::lacks_room(error)) return StartFailure::kNoRoom;
  return retryable ? StartFailure::kMayPass : StartFailure::kForGood;
}

base::Fd lock_of(const base::Fd& folder, bool started_by_executor) {
  if (started_by_executor) return base::Fd(kLockFd);
  auto lock = try_lock(folder.get());
  if (!lock) throw process::LaunchError("another muster-agent, or musterd, holds the attempt's lock", true);
  return std::move(*lock);
}

Launch launch_in(const base::Fd& folder, const std::filesystem::path& path) {
  if (read_status(folder.get()).started) throw process::LaunchError("the attempt was started before", false);
  auto launch = read_launch_in(folder.get());
  if (!launch) throw process::LaunchError(std::string("no ") + kLaunchFile + " in " + path.string(), false);
  if (!launch->local) throw process::LaunchError("the attempt is one of Slurm's: want --attempt FOLDER", false);
  return std::move(*launch);
}

}  // namespace

int start_locally(const LocalStart& how) {
  Report report(how.started_by_executor);
  if (how.started_by_executor) ::fcntl(kLockFd, F_SETFD, FD_CLOEXEC);
  try {
    detach();
    report.say(pid_line(::getpid()));
    const auto path = std::filesystem::absolute(how.folder);
    const auto folder = open_folder(path);
    auto lock = lock_of(folder, how.started_by_executor);
    AgentSetup setup{.attempt_folder = path,
                     .launch = launch_in(folder, path),
                     .inherited = {},
                     .oom_counter = how.oom_counter,
                     .connect = how.connect,
                     .report = how.report};
    setup.ending.longest = kGiveUpEnding;
    how.change(setup);
    if (::chdir("/") != 0) throw_errno("cannot enter /");
    Agent agent(std::move(setup));
    agent.on_over = [&lock] { lock.reset(); };
    agent.run([&report] {
      report.say(running_line());
      report.close();
    });
    return 0;
  } catch (const process::LaunchError& error) {
    report.failed(error.what(), kind_of(error.error, error.retryable));
  } catch (const std::system_error& error) {
    report.failed(error.what(), kind_of(error.code().value(), process::may_pass(error.code().value())));
  } catch (const std::exception& error) {
    report.failed(error.what(), StartFailure::kForGood);
  }
  return 1;
}

}  // namespace agent::program
