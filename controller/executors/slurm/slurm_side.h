#pragma once

#include <optional>
#include <variant>

#include "executors/slurm/explain.h"

namespace executors::on_slurm {

/// What Slurm does with the run of an attempt.
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
