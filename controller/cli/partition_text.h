#pragma once

#include <functional>
#include <string>

#include "cli/client.h"
#include "jobfile/job_keys.h"
#include "muster/v1/partition.pb.h"

namespace cli {

/// "max_nodes 4, users ann bob" of the fields that are said and wanted; empty if there are none.
std::string policy_text(const muster::v1::PartitionPolicy& policy,
                        const std::function<bool(const schema::Key&)>& wanted);
/// "2 idle, 1 used, 1 down"; "-": Slurm does not say.
std::string nodes_text(const muster::v1::PartitionView& partition);
/// Slurm's longest time and most nodes: "12h, 4 nodes"; "-": no limit.
std::string slurm_limits_text(const muster::v1::PartitionView& partition);

/// As the user who asks sees them.
muster::v1::ListPartitionsResponse ask_partitions(Client& client);
/// On stderr: what is wrong with policies, their file, or Slurm.
void tell_problems(const muster::v1::ListPartitionsResponse& listed);

}  // namespace cli
