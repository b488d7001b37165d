#pragma once

#include <functional>
#include <string>

#include "executors/slurm/attempt_table.h"

namespace runtime::on_slurm {

/// Gives waiting jobs the nodes back that were lost when the jobs were handed over, and are not lost any more. Makes
/// one call for all elements of an array. Returns why Slurm can't be reached; empty: it can.
std::string end_exclusions(::slurm::Scheduler& scheduler, AttemptTable& table,
                           const std::function<LostNodes()>& lost_nodes);

}  // namespace runtime::on_slurm
