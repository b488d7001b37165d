#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "executors/slurm/observation.h"

namespace executors::on_slurm {

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

/// What is known when explain() is asked.
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

/// What the listing means. Pure. The first rule that fits is the answer.
Verdict explain(const Evidence& evidence);

/// What accounting's record of the run means. `run_again`: Slurm starts the job again, and a listing did not say why.
Verdict explain(const ::slurm::PastRun& run, bool run_again, const std::vector<std::string>& nodes);

/// What Slurm's final state means; nullopt where the ranks' own exits tell (COMPLETED, FAILED).
std::optional<core::Cause> cause_of(::slurm::JobState state);

}  // namespace executors::on_slurm
