#pragma once

#include "controller/executors/cluster_facts.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

/// Asks Slurm for its partitions and nodes. Runs two commands, each with its own time limit.
ClusterFacts ask_cluster(::slurm::Scheduler& scheduler);

}  // namespace executors::on_slurm
