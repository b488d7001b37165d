#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "controller/core/job.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

/// Nodes that Slurm calls down, each with the reason that Slurm gives.
using DownNodes = std::map<std::string, std::string>;

/// Facts that one poll tells about one attempt.
struct Observation {
  const ::slurm::ListedJob* job = nullptr;  // nullptr: the listing lacks the job
  const DownNodes& down;
  core::Millis asked_at{0};  // squeue was called then
  core::Millis now{0};
  core::Time slurm_now{};  // the same moment by slurmctld's clock
};

inline constexpr const char* kForgotten = "Slurm does not know any more that it runs, and starts it again";

/// Why an attempt ends, as far as Slurm's words tell.
struct Verdict {
  enum class By {
    kNobody,  // Slurm has not said anything
    kSlurm,   // Slurm ends the run. The ranks' exits follow from it
    kRanks,   // the run ended by itself. The exits of its ranks are the cause; `cause` stands in for ranks without one
  };
  By by = By::kNobody;
  core::Cause cause = core::Cause::kFailed;
  std::string reason = {};
  bool save = false;             // the ranks may still save
  bool accounting_next = false;  // accounting may know more than the listing
  bool run_again = false;        // Slurm starts the job again, or has done so
  bool is_success = false;       // Slurm calls the run COMPLETED
};

/// Facts that are known when explain() is asked.
struct Evidence {
  const ::slurm::ListedJob& job;
  const std::vector<std::string>& nodes;  // where the ranks run, by rank; empty: not known
  const DownNodes& down;
  bool preempted = false;  // some listing had a PreemptTime. Slurm deletes PreemptTime when the job waits again
  bool begun = false;      // this attempt's run has begun
  bool all_begun = false;  // every rank of it has
};

/// Slurm starts the job again: it counts a restart, or it lists a run that has begun as waiting. In the second case
/// slurmctld died before it had written down the start.
bool is_run_again(const Evidence& evidence);

/// Explains what the listing means. Pure. The first rule that fits is the answer.
Verdict explain(const Evidence& evidence);

/// Explains accounting's record of the run. `run_again`: Slurm starts the job again, and a listing did not say why.
Verdict explain(const ::slurm::PastRun& run, bool run_again, const std::vector<std::string>& nodes);

/// The cause that Slurm's final state means; nullopt where the ranks' own exits tell (COMPLETED, FAILED).
std::optional<core::Cause> cause_of(::slurm::JobState state);

/// The states of the run of an attempt in Slurm.
///
///   Queued --> Running <--> Suspended      listings alone move an attempt among these
///      \          |         /
///       \         v        /
///        +---> Ending <---+
///
///   any of these --> Missing        a listing lacks the job; the next one that has it moves the attempt back
///   any of these --> Requeued       Slurm starts the job again; accounting is asked why
///   any of these --> Cancelled      accounting is asked who cancelled
///   any of all   --> Ended          it is known why the run is over
///
/// Ended is the last state. A second run of the job, which Slurm starts, is no state: see SlurmAttempt::in_slurm_.

/// The job waits, or its nodes boot.
struct Queued {};
struct Running {
  /// Slurm's own limit is near from this moment on: the ranks are to save.
  struct Limit {
    core::Millis save_at{0};
    core::Millis limit{0};
  };
  std::optional<Limit> limit;            // of a job that Slurm will end
  std::optional<core::Millis> woken_at;  // Slurm has resumed the job then
};
/// Nobody is heard, however long it takes.
struct Suspended {};
/// COMPLETING: the nodes are cleaned up, and the final state is not told yet.
struct Ending {
  core::Millis since{0};
};
using Listed = std::variant<Queued, Running, Suspended, Ending>;
struct Missing {
  Listed before;  // in the newest listing that had the job
  core::Millis since{0};
  int listings = 0;
  std::optional<core::Millis> asked_accounting_at;
};
struct Requeued {
  core::Millis asked_accounting_at{0};
};
struct Cancelled {
  ::slurm::ListedJob job;
  core::Millis asked_accounting_at{0};
};
struct Ended {
  Verdict why;
  core::Millis since{0};
};
using SlurmSide = std::variant<Queued, Running, Suspended, Ending, Missing, Requeued, Cancelled, Ended>;

/// The state in the newest listing that had the job; nullopt: Slurm has done with the run.
std::optional<Listed> newest_listed(const SlurmSide& side);

/// The state of a run that a listing has, and that is neither over nor started again. Pure. `stop_grace`: how long a
/// save may take.
Listed next(const Listed& before, const Observation& seen, core::Millis stop_grace);

/// The state of a run that a listing lacks.
Missing next_missing(const SlurmSide& before, core::Millis now);

}  // namespace executors::on_slurm
