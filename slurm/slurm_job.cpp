#include "slurm/slurm_job.h"

#include <algorithm>
#include <array>

#include "base/numbers.h"
#include "base/words.h"

namespace slurm {
namespace {

constexpr std::size_t kMaxArrayTasks = 4'000'001;  // the upper bound of MaxArraySize

/// Parses "0-5", "7" and "0-10:5" (every fifth). Returns false for other texts and for too many tasks.
bool add_range(std::string_view text, std::vector<std::uint32_t>& tasks) {
  std::uint32_t step = 1;
  if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    const auto given = base::whole_number<std::uint32_t>(text.substr(colon + 1));
    if (!given || *given == 0) return false;
    step = *given;
    text = text.substr(0, colon);
  }
  const auto dash = text.find('-');
  const auto first = base::whole_number<std::uint32_t>(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : base::whole_number<std::uint32_t>(text.substr(dash + 1));
  if (!first || !last || *first > *last) return false;
  if ((*last - *first) / step >= kMaxArrayTasks - std::min(tasks.size(), kMaxArrayTasks)) return false;
  for (std::uint64_t task = *first; task <= *last; task += step) tasks.push_back(static_cast<std::uint32_t>(task));
  return true;
}

std::optional<ArrayRemainder> parse_remainder(std::uint64_t job, std::string_view text) {
  ArrayRemainder remainder{.job = job, .tasks = {}, .parallelism = {}, .cut_short = false};
  if (const auto percent = text.find('%'); percent != std::string_view::npos) {
    remainder.parallelism = base::whole_number<std::uint32_t>(text.substr(percent + 1));
    if (!remainder.parallelism) return std::nullopt;
    text = text.substr(0, percent);
  }
  for (const auto& part : base::split(text, ',')) {
    if (part == "...") {
      remainder.cut_short = true;
    } else if (!add_range(part, remainder.tasks)) {
      return std::nullopt;
    }
  }
  if (remainder.tasks.empty()) return std::nullopt;
  std::ranges::sort(remainder.tasks);
  const auto doubled = std::ranges::unique(remainder.tasks);
  remainder.tasks.erase(doubled.begin(), doubled.end());
  return remainder;
}

struct Row {
  JobState state;
  std::string_view name;
  std::string_view compact;
  JobPhase phase;
};

using enum JobState;
constexpr auto kQueued = JobPhase::kQueued;
constexpr auto kActive = JobPhase::kActive;
constexpr auto kEnding = JobPhase::kEnding;
constexpr auto kEnded = JobPhase::kEnded;
constexpr std::array kRows = {
    Row{kPending, "PENDING", "PD", kQueued},
    Row{kRunning, "RUNNING", "R", kActive},
    Row{kSuspended, "SUSPENDED", "S", kActive},
    Row{kCompleted, "COMPLETED", "CD", kEnded},
    Row{kCancelled, "CANCELLED", "CA", kEnded},
    Row{kFailed, "FAILED", "F", kEnded},
    Row{kTimeout, "TIMEOUT", "TO", kEnded},
    Row{kNodeFail, "NODE_FAIL", "NF", kEnded},
    Row{kPreempted, "PREEMPTED", "PR", kEnded},
    Row{kBootFail, "BOOT_FAIL", "BF", kEnded},
    Row{kDeadline, "DEADLINE", "DL", kEnded},
    Row{kOutOfMemory, "OUT_OF_MEMORY", "OOM", kEnded},
    Row{kCompleting, "COMPLETING", "CG", kEnding},
    Row{kStageOut, "STAGE_OUT", "SO", kActive},
    Row{kConfiguring, "CONFIGURING", "CF", kActive},
    Row{kResizing, "RESIZING", "RS", kActive},
    Row{kRequeued, "REQUEUED", "RQ", kQueued},
    Row{kRequeueFederation, "REQUEUE_FED", "RF", kQueued},
    Row{kRequeueHold, "REQUEUE_HOLD", "RH", kQueued},
    Row{kSpecialExit, "SPECIAL_EXIT", "SE", kQueued},
    Row{kStopped, "STOPPED", "ST", kActive},
    Row{kRevoked, "REVOKED", "RV", kEnded},
    Row{kReservationDeletedHold, "RESV_DEL_HOLD", "RD", kQueued},
    Row{kSignaling, "SIGNALING", "SI", kActive},
    Row{JobState::kUnknown, "UNKNOWN", "?", JobPhase::kUnknown},
};

const Row& row_of(JobState state) {
  for (const auto& row : kRows) {
    if (row.state == state) return row;
  }
  return kRows.back();
}

}  // namespace

std::string to_string(const JobId& id) {
  auto text = std::to_string(id.job);
  if (id.array_task) text += "_" + std::to_string(*id.array_task);
  return text;
}

std::optional<JobId> parse_job_id(std::string_view text) {
  const auto underscore = text.find('_');
  const auto job = base::whole_number<std::uint64_t>(text.substr(0, underscore));
  if (!job || *job == 0) return std::nullopt;
  if (underscore == std::string_view::npos) return JobId{*job, {}};
  const auto task = base::whole_number<std::uint32_t>(text.substr(underscore + 1));
  if (!task) return std::nullopt;
  return JobId{*job, *task};
}

std::optional<std::variant<JobId, ArrayRemainder>> parse_listed_id(std::string_view text) {
  if (const auto id = parse_job_id(text)) return *id;
  const auto bracket = text.find("_[");
  if (bracket == std::string_view::npos || text.back() != ']') return std::nullopt;
  const auto job = base::whole_number<std::uint64_t>(text.substr(0, bracket));
  if (!job || *job == 0) return std::nullopt;
  auto remainder = parse_remainder(*job, text.substr(bracket + 2, text.size() - bracket - 3));
  if (!remainder) return std::nullopt;
  return *std::move(remainder);
}

std::string compress_tasks(std::vector<std::uint32_t> tasks) {
  std::ranges::sort(tasks);
  const auto doubled = std::ranges::unique(tasks);
  tasks.erase(doubled.begin(), doubled.end());
  std::string text;
  for (std::size_t first = 0; first < tasks.size();) {
    auto last = first;
    while (last + 1 < tasks.size() && tasks[last + 1] == tasks[last] + 1) ++last;
    base::append(text, std::to_string(tasks[first]), ",");
    if (last > first) text += "-" + std::to_string(tasks[last]);
    first = last + 1;
  }
  return text;
}

ListedState parse_job_state(std::string_view text) {
  text = base::trimmed(text);
  ListedState listed;
  constexpr std::string_view kBy = " by ";
  if (const auto by = text.find(kBy); by != std::string_view::npos) {
    listed.by = base::trimmed(text.substr(by + kBy.size()));
    text = base::trimmed(text.substr(0, by));
  }
  const bool abridged = text.ends_with('+');
  if (abridged) text.remove_suffix(1);
  listed.text = text;
  const auto said = base::lower_case(text);
  for (const auto& row : kRows) {
    const auto name = base::lower_case(row.name);
    const bool same = said == name || said == base::lower_case(row.compact);
    const bool begins = abridged && said.size() >= 4 && name.starts_with(said);
    if (row.state != JobState::kUnknown && (same || begins)) {
      listed.state = row.state;
      return listed;
    }
  }
  return listed;
}

std::string_view name(JobState state) {
  return row_of(state).name;
}
JobPhase classify(JobState state) {
  return row_of(state).phase;
}

}  // namespace slurm
