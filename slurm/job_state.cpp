#include "slurm/job_state.h"

#include <array>

#include "slurm/text.h"

namespace slurm {
namespace {

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

ListedState parse_job_state(std::string_view text) {
  text = trimmed(text);
  ListedState listed;
  constexpr std::string_view kBy = " by ";
  if (const auto by = text.find(kBy); by != std::string_view::npos) {
    listed.by = trimmed(text.substr(by + kBy.size()));
    text = trimmed(text.substr(0, by));
  }
  const bool abridged = text.ends_with('+');
  if (abridged) text.remove_suffix(1);
  listed.text = text;
  for (const auto& row : kRows) {
    const bool same = equal_without_case(text, row.name) || equal_without_case(text, row.compact);
    const bool begins = abridged && text.size() >= 4 && row.name.size() > text.size() &&
                        equal_without_case(text, row.name.substr(0, text.size()));
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
