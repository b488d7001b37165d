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
  kUnknown,  // a later Slurm's; never a reason to act
};

/// Where in its life a job is.
enum class JobPhase {
  kQueued,   // waits for its turn, for the first time or again
  kActive,   // has nodes
  kEnding,   // is over, but not everywhere yet; its final state is not known
  kEnded,    // will not run again
  kUnknown,  // ask again later
};

/// A state as it was printed. An unknown one keeps its text.
struct ListedState {
  JobState state = JobState::kUnknown;
  std::string text{};  // without "by <uid>" and "+"
  std::string by{};    // sacct's "CANCELLED by 1000": who, as a user id; otherwise empty

  bool operator==(const ListedState&) const = default;
};

/// Reads long and compact names in any case ("RUNNING", "R"), and sacct's "CANCELLED by 1000" and abridged
/// "CANCELLED+".
ListedState parse_job_state(std::string_view text);

/// Slurm's long name; "UNKNOWN" for kUnknown.
std::string_view name(JobState state);
/// Slurm's name of at most three letters; "?" for kUnknown.
std::string_view compact_name(JobState state);

/// REVOKED (the job lives on in another cluster of a federation) counts as ended. SPECIAL_EXIT and the holds are
/// queued.
JobPhase classify(JobState state);

}  // namespace slurm
