#pragma once

#include <string>
#include <string_view>

namespace slurm {

/// Every state that Slurm 22.05 prints for a job.
enum class JobState {
  kPending,
  kRunning,
  kSuspended,
  kCompleted,
  kCancelled,
  kFailed,
  kTimeout,
  kNodeFail,
  kPreempted,
  kBootFail,
  kDeadline,
  kOutOfMemory,
  kCompleting,
  kStageOut,
  kConfiguring,
  kResizing,
  kRequeued,
  kRequeueFederation,
  kRequeueHold,
  kSpecialExit,
  kStopped,
  kRevoked,
  kReservationDeletedHold,
  kSignaling,
  kUnknown,  // a state of a later Slurm; never act on it
};

/// The phase of a job's life.
enum class JobPhase {
  kQueued,   // waits to start, for the first time or again
  kActive,   // has nodes
  kEnding,   // ends; some nodes are still cleaning up, and the final state is unknown
  kEnded,    // will not run again
  kUnknown,  // ask again later
};

/// A state as Slurm printed it. An unknown state keeps its text.
struct ListedState {
  JobState state = JobState::kUnknown;
  std::string text{};  // without "by <uid>" and "+"
  std::string by{};    // the user id in sacct's "CANCELLED by 1000"; otherwise empty

  bool operator==(const ListedState&) const = default;
};

/// Reads long and compact names in any case ("RUNNING", "R"), and sacct's "CANCELLED by 1000" and shortened
/// "CANCELLED+".
ListedState parse_job_state(std::string_view text);

/// Slurm's long name; "UNKNOWN" for kUnknown.
std::string_view name(JobState state);

/// The phase of a state. REVOKED counts as ended, because the job goes on in another cluster of a federation.
/// SPECIAL_EXIT and the states of held jobs count as queued.
JobPhase classify(JobState state);

}  // namespace slurm
