#pragma once

#include "executors/cluster_facts.h"
#include "slurm/scheduler.h"

namespace runtime::on_slurm {

/// What Slurm says of its partitions and nodes now: two commands, each with its time limit.
ClusterFacts ask_cluster(::slurm::Scheduler& scheduler);

}  // namespace runtime::on_slurm
