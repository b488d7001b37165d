#include "cli/debug_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <utility>

#include "beside/stop_file.h"
#include "cli/failure.h"
#include "cli/interrupts.h"
#include "slurm/command.h"

namespace cli {
namespace {

using DebugClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{20};

/// Set by SIGTERM and SIGHUP. The ranks are then asked to leave, and this process stays to clean up.
std::atomic<bool> told_to_leave{false};

void note_leave(int) {
  told_to_leave = true;
}

/// Why a rank could not be started.
struct StartProblem {
  int step = 0;  // 1: entering the working folder; 2: starting the program
  int error = 0;
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

struct Wanted {
  const char* file;
  std::vector<char*> argv, envp;
  const char* working_folder;
  int output;  // -1: the output of this process
  int told;
  pid_t parent;
};

[[noreturn]] void become_rank(const Wanted& wanted) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != wanted.parent) ::_exit(127);
  for (const int number : {SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (wanted.output >= 0) {
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    ::dup2(wanted.output, STDOUT_FILENO);
    ::dup2(wanted.output, STDERR_FILENO);
  }
  StartProblem problem{1, 0};
  if (::chdir(wanted.working_folder) == 0) {
    problem.step = 2;
    ::execve(wanted.file, wanted.argv.data(), wanted.envp.data());
  }
  problem.error = errno;
  [[maybe_unused]] const auto written = ::write(wanted.told, &problem, sizeof problem);
  ::_exit(127);
}

/// The program's file, found in the rank's PATH as a shell does; empty: there is none.
std::string program_of(const DebugRank& rank) {
  const auto& name = rank.words.front();
  const auto path = rank.environment.find("PATH");
  if (name.find('/') != std::string::npos || path == rank.environment.end()) return name;
  return slurm::find_in(path->second, name).value_or("");
}

[[noreturn]] void fail_to_start(const DebugRank& rank, const StartProblem& problem) {
  if (problem.step == 1) {
    throw Failure(kUsage, "cannot enter working_folder " + rank.working_folder + ": " + std::strerror(problem.error));
  }
  throw Failure(kUsage, "cannot start " + rank.words[0] + ": " + std::strerror(problem.error) +
                            "; is it in PATH, and may it be executed? A relative path starts at working_folder");
}

std::string end_text_of(int status) {
  return WIFSIGNALED(status) ? "was ended by signal " + std::to_string(WTERMSIG(status))
                             : "exited with " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

DebugRanks::DebugRanks(const std::vector<DebugRank>& ranks) : ranks_(ranks.size()) {
  std::cout << std::flush;
  Interrupts::instance().leave_to_children();
  for (const int number : {SIGTERM, SIGHUP}) ::signal(number, note_leave);
  try {
    for (std::size_t number = 0; number < ranks.size(); ++number) start(ranks[number], number);
  } catch (...) {
    signal_all(SIGKILL);
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
    throw;
  }
}

DebugRanks::~DebugRanks() {
  for (const auto& rank : ranks_) {
    if (rank.output >= 0) ::close(rank.output);
  }
}

void DebugRanks::start(const DebugRank& rank, std::size_t number) {
  int told[2], output[2] = {-1, -1};
  if (::pipe2(told, O_CLOEXEC) != 0 || (number > 0 && ::pipe2(output, O_CLOEXEC) != 0)) {
    throw Failure(kUsage, std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  const auto program = program_of(rank);
  if (program.empty()) fail_to_start(rank, {2, ENOENT});
  std::vector<std::string> settings;
  for (const auto& [name, value] : rank.environment) settings.push_back(name + "=" + value);
  const Wanted wanted{
      program.c_str(), pointers_to(rank.words), pointers_to(settings), rank.working_folder.c_str(), output[1], told[1],
      ::getpid()};
  const pid_t pid = ::fork();
  if (pid == 0) become_rank(wanted);
  const int error = errno;
  ::close(told[1]);
  if (output[1] >= 0) ::close(output[1]);
  ranks_[number] = {pid, output[0], rank.stop_file};
  StartProblem problem{2, error};
  const bool failed = pid < 0 || ::read(told[0], &problem, sizeof problem) == sizeof problem;
  ::close(told[0]);
  if (failed) fail_to_start(rank, problem);
}

void DebugRanks::signal_all(int number) {
  for (const auto& rank : ranks_) {
    if (rank.pid > 1) ::kill(rank.pid, number);
  }
}

// As in an attempt, the stop file with the reason is written before the signal is sent.
void DebugRanks::ask_to_leave(std::chrono::milliseconds stop_grace) {
  const auto at = std::chrono::system_clock::now() + stop_grace;
  const auto deadline = std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch());
  const bool failed = first_failure_.has_value();
  for (const auto& rank : ranks_) {
    if (rank.pid <= 0) continue;
    // Without the stop file the program would take the signal for a preemption, and save.
    beside::write_stop_file(rank.stop_file, {failed ? "peer_failed" : "cancelled", !failed, deadline.count()});
  }
  signal_all(SIGTERM);
}

bool DebugRanks::any_left() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.pid > 0; });
}

void DebugRanks::take_ends() {
  for (std::size_t number = 0; number < ranks_.size(); ++number) {
    auto& rank = ranks_[number];
    int status = 0;
    if (rank.pid <= 0 || ::waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
    rank.pid = -1;
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0 || first_failure_) continue;
    first_failure_ = code;
    if (any_left()) {
      std::cerr << "muster: rank " << number << " " << end_text_of(status) << "; asking the others to leave"
                << std::endl;
    }
  }
}

void DebugRanks::take(Rank& rank, std::size_t number) {
  char buffer[4096];
  const auto count = ::read(rank.output, buffer, sizeof buffer);
  if (count < 0 && errno == EINTR) return;
  if (count > 0) rank.line.append(buffer, static_cast<std::size_t>(count));
  if (count <= 0) {
    ::close(std::exchange(rank.output, -1));
    if (!rank.line.empty()) rank.line += '\n';
  }
  const auto name = "[rank " + std::to_string(number) + "] ";
  std::string lines;
  for (auto end = rank.line.find('\n'); end != std::string::npos; end = rank.line.find('\n')) {
    // muster-worker begins its lines with the rank.
    if (!rank.line.starts_with(name)) lines += name;
    lines += rank.line.substr(0, end + 1);
    rank.line.erase(0, end + 1);
  }
  std::cerr << lines << std::flush;
}

bool DebugRanks::read_outputs(std::chrono::milliseconds patience) {
  std::vector<pollfd> waits;
  std::vector<std::size_t> numbers;
  for (std::size_t number = 0; number < ranks_.size(); ++number) {
    if (ranks_[number].output < 0) continue;
    waits.push_back({ranks_[number].output, POLLIN, 0});
    numbers.push_back(number);
  }
  if (::poll(waits.data(), waits.size(), static_cast<int>(patience.count())) <= 0) return false;
  for (std::size_t i = 0; i < waits.size(); ++i) {
    if (waits[i].revents != 0) take(ranks_[numbers[i]], numbers[i]);
  }
  return true;
}

int DebugRanks::wait(std::chrono::milliseconds stop_grace) {
  std::optional<DebugClock::time_point> kill_at;
  while (any_left()) {
    read_outputs(kLook);
    take_ends();
    if ((first_failure_ || told_to_leave) && !kill_at) {
      ask_to_leave(stop_grace);
      kill_at = DebugClock::now() + stop_grace;
    }
    if (kill_at && DebugClock::now() >= *kill_at) signal_all(SIGKILL);
  }
  // Read the rest of the pipes, but do not wait for processes that a rank has left behind.
  while (read_outputs(std::chrono::milliseconds(0))) {
  }
  return first_failure_.value_or(0);
}

}  // namespace cli
