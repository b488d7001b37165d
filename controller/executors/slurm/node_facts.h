#pragma once

#include "executors/slurm/attempt_table.h"
#include "executors/slurm/slurm_clock.h"

namespace runtime::on_slurm {

// What one listing makes the executor find out about nodes. All facts come before the end of the attempt, which would
// otherwise be all that is told.

/// Tells which nodes failed the health check of an attempt that the listing shows as unfit.
void tell_unfit_nodes(AttemptTable& table, const std::vector<::slurm::ListedJob>& jobs);

/// The nodes that could not start the attempt, as facts about it: Slurm has drained them for that, since `since` by
/// slurmctld's clock. The clock has whole seconds. A node in `left_out` was drained for an earlier attempt.
std::vector<core::EventBody> nodes_without_launch(const std::vector<::slurm::Node>& nodes, core::Time since,
                                                  const std::vector<std::string>& left_out,
                                                  core::AttemptNumber attempt);
/// Tells which nodes could not start an attempt. Slurm drains them a moment later, and the end waits for that.
void tell_nodes_without_launch(::slurm::Scheduler& scheduler, AttemptTable& table,
                               const std::vector<::slurm::ListedJob>& jobs, const SlurmClock& slurm_clock,
                               core::Millis now);

/// The nodes that Slurm calls down. Slurm is asked only when it has requeued something without saying why.
DownNodes down_nodes(::slurm::Scheduler& scheduler, AttemptTable& table, const std::vector<::slurm::ListedJob>& jobs);

}  // namespace runtime::on_slurm
