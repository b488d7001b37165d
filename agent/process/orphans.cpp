#include "agent/process/orphans.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "contract/rank_log.h"
#include "contract/variables.h"

namespace agent {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
namespace variable = contract::variable;
constexpr milliseconds kLookAgain{20};

/// Calls `round` until it says that nothing is left. Returns its last words.
template <class Round>
std::string until_nothing_is_left(milliseconds patience, Round&& round) {
  for (const auto give_up = Clock::now() + patience;; ::poll(nullptr, 0, static_cast<int>(kLookAgain.count()))) {
    std::string left;
    try {
      left = round();
    } catch (const std::exception& error) {
      left = std::string("what cannot be seen (") + error.what() + ")";
    }
    if (left.empty() || Clock::now() >= give_up) return left;
  }
}

template <class Mine>
std::string end_round(const Kill& kill, Mine&& is_mine) {
  std::vector<os::ProcessStat> left, others;
  for (const auto& process : os::all_processes()) {
    if (process.is_dead() || process.pid == ::getpid()) continue;
    (is_mine(process) ? left : others).push_back(process);
  }
  os::add_started_by(left, others);
  for (const auto& process : left) kill(process);
  return in_words(left);
}

std::filesystem::path job_of(const std::string& attempt) {
  return std::filesystem::path(attempt).parent_path();
}

/// As the kernel names it.
std::string real_path(const std::string& path) {
  std::error_code none;
  const auto real = std::filesystem::weakly_canonical(path, none);
  return none ? path : real.string();
}

std::int64_t number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

constexpr std::string_view kAttempt = "attempt-";

/// Whether the value is whole: who overwrites an environment may leave the beginning of one.
bool is_attempt_folder(const std::string& folder) {
  std::error_code none;
  const std::filesystem::path path(folder);
  return path.filename().string().starts_with(kAttempt) && std::filesystem::is_directory(path, none);
}

bool is_of_another_slurm_job(std::int64_t pid) {
  const auto ranks = os::variable_of_process(pid, variable::kSlurmJob);
  const auto own = os::variable_of_process(pid, "SLURM_JOB_ID");
  return ranks && own && *ranks != *own;
}

class Earlier {
 public:
  explicit Earlier(const AttemptMark& mark)
      : mark_(mark), job_(job_of(mark.folder)), real_job_(real_path(job_.string())) {}

  bool operator()(const os::ProcessStat& process) const {
    const auto folder = os::variable_of_process(process.pid, variable::kAttemptFolder);
    if (folder && is_attempt_folder(*folder)) {
      if (*folder == mark_.folder || job_of(*folder) != job_) return false;
      const auto number = os::variable_of_process(process.pid, variable::kAttempt);
      return number && is_earlier(*number) && !is_of_another_slurm_job(process.pid);
    }
    return std::ranges::any_of(os::outputs_of_process(process.pid),
                               [&](const std::string& file) { return is_log(file); });
  }

 private:
  bool is_earlier(std::string_view number) const {
    const auto value = number_in(number);
    return value > 0 && value < mark_.number;
  }
  bool is_log(const std::string& file) const {
    const auto attempt = contract::attempt_of_log(file);
    if (attempt.empty() || job_of(attempt) != real_job_) return false;
    const auto name = std::filesystem::path(attempt).filename().string();
    return name.starts_with(kAttempt) && is_earlier(std::string_view(name).substr(kAttempt.size()));
  }

  const AttemptMark& mark_;
  const std::filesystem::path job_, real_job_;
};

}  // namespace

std::string in_words(const std::vector<os::ProcessStat>& processes) {
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
    std::vector<os::ProcessStat> left;
    for (const auto& process : os::all_processes()) {
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
  const auto log = real_path(mark.log);
  return until_nothing_is_left(patience, [&] {
    return end_round(kill, [&](const os::ProcessStat& process) {
      const auto folder = os::variable_of_process(process.pid, variable::kAttemptFolder);
      if (folder && is_attempt_folder(*folder)) {
        return *folder == mark.attempt_folder &&
               os::variable_of_process(process.pid, variable::kReport) == mark.report &&
               !is_of_another_slurm_job(process.pid);
      }
      const auto outputs = os::outputs_of_process(process.pid);
      return std::ranges::find(outputs, log) != outputs.end();
    });
  });
}

}  // namespace agent
