#include "agent/process/orphans.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>

#include "agent/protocol/files.h"
#include "base/fd.h"
#include "base/numbers.h"
#include "base/patience.h"
#include "spec/variables.h"

namespace agent::process {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
namespace variable = spec::variable;
/// All of /proc is read at each look, and what SIGKILL does not end at once may stay for long.
constexpr milliseconds kLookAgain{20}, kLookAtMost{200};

/// Calls `round` until it says that nothing is left. Returns its last words.
template <class Round>
std::string until_nothing_is_left(milliseconds patience, Round&& round) {
  const auto give_up = Clock::now() + patience;
  for (auto pause = kLookAgain;; pause = std::min(pause * 2, kLookAtMost)) {
    std::string left;
    try {
      left = round();
    } catch (const std::exception& error) {
      left = std::string("what cannot be seen (") + error.what() + ")";
    }
    if (left.empty() || Clock::now() >= give_up) return left;
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
  }
}

template <class Mine>
std::string end_round(const Kill& kill, Mine&& is_mine) {
  std::vector<base::ProcessStat> left, others;
  for (const auto& process : base::all_processes()) {
    if (process.is_dead() || process.pid == ::getpid()) continue;
    (is_mine(process) ? left : others).push_back(process);
  }
  base::add_started_by(left, others);
  for (const auto& process : left) kill(process);
  return in_words(left);
}

std::filesystem::path job_of(const std::string& attempt) {
  return std::filesystem::path(attempt).parent_path();
}

bool is_of_another_slurm_job(std::int64_t pid) {
  const auto ranks = base::variable_of_process(pid, variable::kSlurmJob);
  const auto own = base::variable_of_process(pid, "SLURM_JOB_ID");
  return ranks && own && *ranks != *own;
}

class Earlier {
 public:
  explicit Earlier(const AttemptMark& mark)
      : mark_(mark), job_(job_of(mark.folder)), real_job_(base::real_path(job_.string())) {}

  bool operator()(const base::ProcessStat& process) const {
    if (const auto folder = attempt_folder_of_process(process.pid)) {
      if (*folder == mark_.folder || job_of(*folder) != job_) return false;
      const auto number = base::variable_of_process(process.pid, variable::kAttempt);
      return is_earlier(base::whole_number<std::int64_t>(number.value_or(""))) && !is_of_another_slurm_job(process.pid);
    }
    return std::ranges::any_of(base::outputs_of_process(process.pid),
                               [&](const std::string& file) { return is_log(file); });
  }

 private:
  bool is_earlier(std::optional<std::int64_t> number) const { return number && *number > 0 && *number < mark_.number; }
  bool is_log(const std::string& file) const {
    const auto attempt = protocol::attempt_of_log(file);
    if (attempt.empty() || job_of(attempt) != real_job_) return false;
    return is_earlier(protocol::number_of_attempt_folder(attempt));
  }

  const AttemptMark& mark_;
  const std::filesystem::path job_, real_job_;
};

}  // namespace

std::optional<std::string> attempt_folder_of_process(std::int64_t pid) {
  auto folder = base::variable_of_process(pid, variable::kAttemptFolder);
  return folder && protocol::number_of_attempt_folder(*folder) ? folder : std::nullopt;
}

std::string in_words(const std::vector<base::ProcessStat>& processes) {
  if (processes.empty()) return {};
  const auto& first = processes.front();
  const auto one = std::to_string(first.pid) + " (" + first.name + ")";
  if (processes.size() == 1) return "process " + one;
  return std::to_string(processes.size()) + " processes, among them " + one;
}

std::string end_children(milliseconds patience, const Kill& kill) {
  return until_nothing_is_left(patience, [&]() -> std::string {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) return {};
    std::vector<base::ProcessStat> left;
    for (const auto& process : base::all_processes()) {
      if (process.parent == ::getpid()) left.push_back(process);
    }
    for (const auto& process : left) kill(process);
    return left.empty() ? "a child" : in_words(left);
  });
}

std::string end_earlier_attempts(const AttemptMark& mark, milliseconds patience, const Kill& kill) {
  if (mark.number <= 1 || mark.folder.empty()) return {};
  const Earlier is_earlier(mark);
  return until_nothing_is_left(patience, [&] { return end_round(kill, is_earlier); });
}

std::string end_rank(const RankMark& mark, milliseconds patience, const Kill& kill) {
  const auto log = base::real_path(mark.log);
  return until_nothing_is_left(patience, [&] {
    return end_round(kill, [&](const base::ProcessStat& process) {
      if (const auto folder = attempt_folder_of_process(process.pid)) {
        return *folder == mark.attempt_folder &&
               base::variable_of_process(process.pid, variable::kReport) == mark.report &&
               !is_of_another_slurm_job(process.pid);
      }
      const auto outputs = base::outputs_of_process(process.pid);
      return std::ranges::find(outputs, log) != outputs.end();
    });
  });
}

void say_in_log(const std::filesystem::path& log, const std::string& line) {
  constexpr milliseconds kPatience{500};
  base::ask_within<bool>(kPatience, [log, line] {
    std::fputs(line.c_str(), stderr);
    const base::Fd file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
    return file && ::write(file.get(), line.data(), line.size()) >= 0;
  });
}

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
