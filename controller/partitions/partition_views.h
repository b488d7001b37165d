#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "controller/partitions/partition_policies.h"
#include "controller/store/store.h"
#include "muster/v1/job.pb.h"
#include "muster/v1/partition.pb.h"

namespace partitions {

/// Misfits between a policy and the partition of that name in Slurm, each with its remedy. `slurm` null: Slurm has
/// none. Only to be asked when Slurm has answered.
std::vector<std::string> misfits(const PartitionPolicy& policy, const executors::PartitionFacts* slurm);

/// A policy and Slurm's facts side by side, without what concerns the one who asks. Either may be missing.
muster::v1::PartitionView partition_view(const std::string& name, const PartitionPolicy* policy,
                                         const executors::ClusterFacts& slurm);

/// Why a job that Slurm has taken can never start as it is.
struct NeverStarts {
  std::string why;                         // "it asks for 5 nodes, and partition \"main\" has 4"
  std::string instead;                     // what to ask for: "resources.nodes at most 4"
  std::optional<core::Millis> limit = {};  // a time limit that would do, where that is all that is wrong
};
/// nullopt: nothing that Slurm says of its partitions and nodes speaks against it. `limit`: the one in force.
std::optional<NeverStarts> never_starts(const muster::v1::JobSpec& spec, core::Millis limit,
                                        const executors::ClusterFacts& slurm);

/// Nodes as Slurm has them, and which of them get no rank of muster's: those that NodeLost events speak of, for
/// `excluded_for` from then on. Of several losses of a node the newest counts.
std::vector<muster::v1::NodeView> node_views(const std::vector<executors::NodeFacts>& nodes,
                                             const std::vector<store::StoredEvent>& losses, core::Millis excluded_for);

muster::v1::AuditEntry audit_view(const store::AuditRow& row);

}  // namespace partitions
