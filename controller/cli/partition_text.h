#pragma once

#include <functional>
#include <string>

#include "cli/client.h"
#include "jobfile/job_keys.h"
#include "muster/v1/partition.pb.h"

namespace cli {

/// "max_nodes 4, users ann bob": the fields that are wanted and that the policy has; empty: none.
std::string policy_text(const muster::v1::PartitionPolicy& policy,
                        const std::function<bool(const schema::Key&)>& wanted);
/// "2 idle, 1 used, 1 down"; "-": not known.
std::string nodes_text(const muster::v1::PartitionView& partition);
/// Slurm's longest time and most nodes: "12h, 4 nodes"; "-": no limit.
std::string slurm_limits_text(const muster::v1::PartitionView& partition);

/// The partitions as the current user sees them.
muster::v1::ListPartitionsResponse ask_partitions(Client& client);
/// Says on stderr that Slurm does not answer, if there is a problem.
void tell_slurm_problem(const std::string& problem);
/// Prints problems of policies, of their file, or of Slurm on stderr.
void tell_problems(const muster::v1::ListPartitionsResponse& listed);

}  // namespace cli
