#include "cli/own_musterd.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/durable_file.h"
#include "base/fd.h"
#include "base/process_table.h"
#include "base/words.h"
#include "cli/cli_command.h"
#include "cli/user_service.h"
#include "controller/common/data_folder.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using common::Running;
using Clock = std::chrono::steady_clock;

/// A store that was not closed in order is read whole.
constexpr std::chrono::seconds kReadyWithin{120};
/// musterd bounds its own end by 20 s.
constexpr std::chrono::seconds kEndsWithin{60};
constexpr std::chrono::milliseconds kLookEvery{30};
constexpr std::size_t kMostWords = std::size_t{64} << 10;
constexpr std::size_t kMostLines = 5;

std::uintmax_t size_of(const fs::path& file) {
  std::error_code none;
  const auto size = fs::file_size(file, none);
  return none ? 0 : size;
}

bool names(const std::vector<std::string>& flags, const std::string& flag) {
  return std::ranges::any_of(flags, [&](const auto& word) { return word == flag || word.starts_with(flag + "="); });
}

/// Starts the command in a session of its own, with its output behind the log.
pid_t start_detached(const std::vector<std::string>& command, const fs::path& log) {
  const base::Fd out(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!out) throw Failure(kUsage, "cannot write " + log.native() + ": " + std::strerror(errno));
  const base::Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const std::string problem = "musterd: cannot run " + command.front() + "\n";
  const pid_t child = ::fork();
  if (child < 0) throw Failure(kUsage, std::string("cannot start musterd: ") + std::strerror(errno));
  if (child > 0) return child;
  // From here on only what is safe after a fork of a process with threads.
  ::setsid();
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(out.get(), STDOUT_FILENO);
  ::dup2(out.get(), STDERR_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGHUP, SIG_DFL);
  ::umask(0077);
  ::execv(words.front(), words.data());
  [[maybe_unused]] const auto told = ::write(STDERR_FILENO, problem.data(), problem.size());
  ::_exit(127);
}

bool has_ended(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, WNOHANG) == child;
}

/// Looks until `is_done` holds for who runs on the folder; nullopt: not within the time.
template <typename Done>
std::optional<Running> wait_until(const fs::path& folder, std::chrono::seconds limit, Done is_done) {
  const auto end = Clock::now() + limit;
  for (;;) {
    auto running = common::who_runs(folder);
    if (is_done(running)) return running;
    if (Clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(kLookEvery);
  }
}

bool is_here(const Running& running) {
  return running.kind == Running::Kind::kHere;
}

/// Waits until the musterd that was started is ready. `has_failed`: that it will not become ready. Another one may have
/// been faster.
Running wait_for_ready(const fs::path& folder, std::uintmax_t from, const std::function<bool()>& has_failed) {
  const auto log = log_of(folder);
  bool failed = false;
  const auto running = wait_until(folder, kReadyWithin, [&](const Running& now) {
    // In this order: one that became ready, and then failed, counts as failed.
    if (is_here(now)) return true;
    failed = has_failed();
    return failed && now.kind != Running::Kind::kBusy;
  });
  if (!running) {
    throw Failure(kUnreachable, "musterd is not ready after " + std::to_string(kReadyWithin.count()) +
                                    " s, and goes on: muster status tells when it is; its log is " + log.native());
  }
  if (is_here(*running)) return *running;
  const auto words = words_since(log, from);
  throw Failure(kUnreachable, "musterd did not start: " + (words.empty() ? "it has said nothing" : words) +
                                  " (its log is " + log.native() + ")");
}

}  // namespace

fs::path log_of(const fs::path& data_folder) {
  return data_folder / "musterd.log";
}

std::uintmax_t size_of_log(const fs::path& data_folder) {
  return size_of(log_of(data_folder));
}

std::string words_since(const fs::path& log, std::uintmax_t from) {
  const auto now = size_of(log);
  const auto begin = now < from ? 0 : std::max(from, now - std::min<std::uintmax_t>(now, kMostWords));
  const auto lines = base::split(base::trimmed(base::read_small_file(log, kMostWords, begin)), '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (line->starts_with("musterd: ")) return line->substr(std::string_view("musterd: ").size());
  }
  const auto skipped = lines.size() - std::min(lines.size(), kMostLines);
  return joined(std::vector(lines.begin() + static_cast<std::ptrdiff_t>(skipped), lines.end()), " | ");
}

std::vector<std::string> command_of(const Start& start) {
  if (names(start.flags, "--data-folder")) {
    throw Failure(kUsage,
                  "--data-folder after --: name the folder by MUSTER_DATA_FOLDER, so that muster finds it, too");
  }
  const auto program = must_find("musterd", "so no controller can be started");
  std::vector<std::string> words{fs::absolute(program).native(), "--data-folder", start.data_folder.native()};
  const auto add = [&](const char* flag, const std::string& value) {
    if (!names(start.flags, flag)) words.insert(words.end(), {flag, value});
  };
  add("--listen", "auto");
  add("--http", "auto");
  add("--log-file", log_of(start.data_folder).native());
  if (start.in_slurm) {
    words.push_back("--in-slurm");
    add("--slurm", "yes");
    add("--local-gpus", "none");  // Slurm has given this job none
  }
  words.insert(words.end(), start.flags.begin(), start.flags.end());
  return words;
}

Running settled(const fs::path& data_folder) {
  const auto running =
      wait_until(data_folder, kReadyWithin, [](const Running& now) { return now.kind != Running::Kind::kBusy; });
  if (running) return *running;
  throw Failure(kUnreachable, common::who_runs(data_folder).why + " for more than " +
                                  std::to_string(kReadyWithin.count()) + " s: look at its log, " +
                                  log_of(data_folder).native());
}

Started start_musterd(const Start& start) {
  const auto& folder = start.data_folder;
  const auto before = settled(folder);
  if (is_here(before)) return {*before.ready, true, {}};
  if (before.kind == Running::Kind::kElsewhere) {
    throw Failure(kUsage, before.why +
                              ": end it there with muster down; if that machine is gone, remove the file; for a second "
                              "musterd here, name another folder by MUSTER_DATA_FOLDER");
  }
  const auto command = command_of(start);
  common::make_data_folder(folder);
  const auto log = log_of(folder);
  const auto from = size_of_log(folder);
  const UserService service(folder);
  auto no_service = start.may_use_service ? service.why_not() : std::string();
  if (start.may_use_service && no_service.empty()) {
    service.start(command, log);
    try {
      return {*wait_for_ready(folder, from, [&] { return service.has_failed(); }).ready, false, {}};
    } catch (const Failure&) {
      service.remove();
      throw;
    }
  }
  const auto child = start_detached(command, log);
  bool ended = false;
  const auto running = wait_for_ready(folder, from, [&] { return ended = ended || has_ended(child); });
  const bool was_slower = running.ready->pid != child;
  // It waits for the lock for a moment, and would run on where the other one ends meanwhile.
  if (was_slower && !ended && !has_ended(child)) ::kill(child, SIGTERM);
  return {*running.ready, was_slower, std::move(no_service)};
}

void stop_musterd(const Running& running) {
  const auto& ready = *running.ready;
  const auto folder = ready.file.parent_path();
  const UserService service(folder);
  if (service.main_pid() == ready.pid) {
    service.stop();
  } else {
    base::signal_exactly({.pid = ready.pid, .start_time = ready.start_time}, SIGTERM);
    if (service.is_written()) service.stop();
  }
  // musterd gives its folder free a moment before it ends. Another one that was started meanwhile is not this one.
  const auto end = wait_until(folder, kEndsWithin, [&](const Running& now) {
    return !ready.is_alive() && (now.kind == Running::Kind::kNone || (is_here(now) && now.ready->pid != ready.pid));
  });
  if (end) return;
  throw Failure(kUnreachable, "musterd (process " + std::to_string(ready.pid) + ") has not ended within " +
                                  std::to_string(kEndsWithin.count()) + " s; its log is " + log_of(folder).native() +
                                  "; kill -9 ends it, and running jobs go on");
}

}  // namespace cli
