#pragma once

#include <string>
#include <vector>

#include "core/event.h"
#include "slurm/scheduler.h"

namespace runtime::on_slurm {

/// Slurm could not start a run on its nodes, has put the job back and holds it. A prolog failed, or a slurmd refused.
bool is_launch_failure(const ::slurm::ListedJob& job);

/// The nodes that could not start the attempt, as facts about it: Slurm has drained them for that, since `since` by
/// slurmctld's clock. The clock has whole seconds. A node in `left_out` was drained for an earlier attempt.
std::vector<core::EventBody> nodes_without_launch(const std::vector<::slurm::Node>& nodes, core::Time since,
                                                  const std::vector<std::string>& left_out,
                                                  core::AttemptNumber attempt);

}  // namespace runtime::on_slurm
