#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace slurm {

/// Slurm's id of a job, "123", or of one element of an array, "123_4".
///
/// An id alone never proves a job's identity. A slurmctld that loses its last seconds gives the same number to the next
/// job. Keep the id together with the job's comment.
struct JobId {
  std::uint64_t job = 0;
  std::optional<std::uint32_t> array_task{};

  auto operator<=>(const JobId&) const = default;
};

/// "123" or "123_4", as sbatch, scancel and scontrol take it.
std::string to_string(const JobId& id);

/// Returns nullopt unless the text is exactly such an id. Job number 0 is no id.
std::optional<JobId> parse_job_id(std::string_view text);

/// The elements of an array that have not started yet. Slurm lists them as one job: "123_[0-5,9%2]".
struct ArrayRemainder {
  std::uint64_t job = 0;
  std::vector<std::uint32_t> tasks{};          // ascending, each once
  std::optional<std::uint32_t> parallelism{};  // the number after %
  bool cut_short = false;                      // Slurm shortened the list ("0-5,..."); tasks holds its beginning

  bool operator==(const ArrayRemainder&) const = default;
};

/// Parses everything that squeue and sacct print as a job id. Returns nullopt for heterogeneous jobs ("123+0"), for
/// steps ("123.0"), for anything that is no id, and for arrays of more than 4,000,001 tasks (Slurm's own bound).
std::optional<std::variant<JobId, ArrayRemainder>> parse_listed_id(std::string_view text);

/// "0-3,7" for {0,1,2,3,7}, in the form that --array takes. The order of `tasks` does not matter.
std::string compress_tasks(std::vector<std::uint32_t> tasks);

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
