#include "executors/local/start_supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "agent/supervisor/attempt_folder.h"
#include "contract/supervisor_words.h"
#include "os/room.h"

namespace executors::local {
namespace {

using Clock = std::chrono::steady_clock;
using contract::kLockFd;
using contract::kReportFd;
using os::Fd;

/// posix_spawn's two records, freed at the end.
struct SpawnPlan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
};

/// Starts the program; it goes to the background by itself, so what is waited for ends at once. Returns 0 or an errno.
int spawn(const std::filesystem::path& program, const std::filesystem::path& folder, const Fd& lock, const Fd& report,
          pid_t& pid) {
  SpawnPlan plan;
  // Out of the way of the numbers that they get in the child.
  const Fd high_lock(::fcntl(lock.get(), F_DUPFD_CLOEXEC, 10));
  const Fd high_report(::fcntl(report.get(), F_DUPFD_CLOEXEC, 10));
  if (!high_lock || !high_report) return errno;
  const auto log = (folder / agent::supervisor::kSupervisorLog).string();
  auto* const actions = &plan.actions;
  ::posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(actions, STDOUT_FILENO, STDERR_FILENO);
  ::posix_spawn_file_actions_adddup2(actions, high_lock.get(), kLockFd);
  ::posix_spawn_file_actions_adddup2(actions, high_report.get(), kReportFd);
  ::posix_spawn_file_actions_addclosefrom_np(actions, kReportFd + 1);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&plan.attributes, &none);
  ::posix_spawnattr_setsigdefault(&plan.attributes, &all);
  ::posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  std::array<std::string, 3> arguments{program.string(), "--started-by-musterd", folder.string()};
  std::array<char*, 4> argv{arguments[0].data(), arguments[1].data(), arguments[2].data(), nullptr};
  return ::posix_spawn(&pid, program.c_str(), actions, &plan.attributes, argv.data(), environ);
}

/// Reads until the other end closes; false at the deadline.
bool read_all(int fd, std::string& text, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waited{fd, POLLIN, 0};
    if (left <= 0) return false;
    if (::poll(&waited, 1, static_cast<int>(left)) <= 0) continue;
    char buffer[4096];
    const auto count = ::read(fd, buffer, sizeof buffer);
    if (count == 0) return true;
    if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
  }
}

StartAnswer understand(const std::string& text) {
  using contract::StartFailure;
  const auto report = contract::parse_start_report(text);
  if (report.running) return {StartAnswer::Kind::kRunning, "", true};
  if (report.failure) {
    return {StartAnswer::Kind::kFailed, report.reason, report.failure != StartFailure::kForGood,
            report.failure == StartFailure::kNoRoom          ? ENOSPC
            : report.failure == StartFailure::kNoDescriptors ? EMFILE
                                                             : 0};
  }
  return {StartAnswer::Kind::kSilent, "its supervisor ended without a word", true};
}

/// Ends a supervisor that did not start its ranks in time: `launcher`, then the process in the background, whose number
/// is its first word. Only its end closes our pipe, so while that is open the number is its own.
void kill_supervisor(pid_t launcher, int words, std::string& text) {
  constexpr std::chrono::seconds kLastWords{2};
  ::kill(launcher, SIGKILL);  // not waited for yet
  if (text.empty() && read_all(words, text, Clock::now() + kLastWords)) return;
  const auto pid = static_cast<pid_t>(contract::parse_start_report(text).pid.value_or(0));
  if (pid > 1) ::kill(pid, SIGKILL);
  read_all(words, text, Clock::now() + kLastWords);
}

}  // namespace

StartAnswer start_supervisor(const std::filesystem::path& program, const std::filesystem::path& folder, Fd lock,
                             Clock::time_point deadline, const std::function<void()>& spawned) {
  const auto failed = [](const std::string& what, int error) {
    return StartAnswer{StartAnswer::Kind::kFailed, what + ": " + std::strerror(error), true,
                       os::lacks_room(error) ? error : 0};
  };
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed("cannot make a pipe", errno);
  const Fd words(ends[0]);
  Fd report(ends[1]);
  pid_t pid = 0;
  const int error = spawn(program, folder, lock, report, pid);
  report.reset();
  if (error != 0) return failed("cannot start " + program.string(), error);
  if (spawned) spawned();
  std::string text;
  const bool closed = read_all(words.get(), text, deadline);
  if (!closed) kill_supervisor(pid, words.get(), text);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!closed) return {StartAnswer::Kind::kSilent, "its ranks did not start in time", true};
  return understand(text);
}

}  // namespace executors::local
