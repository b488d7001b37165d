#pragma once

#include <string>
#include <vector>

#include "core/event.h"
#include "slurm/scheduler.h"

namespace runtime::on_slurm {

/// Slurm could not start a run on its nodes (a prolog failed, a slurmd refused it), has put the job back and holds it.
bool is_launch_failure(const ::slurm::ListedJob& job);

/// The nodes on which it could not, as facts of this attempt: those that Slurm has drained for that, not before `since`
/// by its own clock. Its clock says whole seconds: what this attempt was to get no rank on was drained for an earlier
/// one.
std::vector<core::EventBody> nodes_without_launch(const std::vector<::slurm::Node>& nodes, core::Time since,
                                                  const std::vector<std::string>& left_out,
                                                  core::AttemptNumber attempt);

}  // namespace runtime::on_slurm
