#pragma once

#include <string>
#include <vector>

#include "core/job.h"
#include "muster/v1/partition.pb.h"
#include "runtime/partitions/cluster_facts.h"
#include "runtime/partitions/partition_book.h"
#include "store/store.h"

namespace runtime {

/// What does not fit together in a policy and the partition of that name in Slurm, each with its remedy. `slurm` null:
/// Slurm has none. Only to be asked when Slurm has answered.
std::vector<std::string> misfits(const PartitionPolicy& policy, const PartitionFacts* slurm);

/// A policy and Slurm's facts side by side, without what concerns the one who asks. Either may be missing.
muster::v1::PartitionView partition_view(const std::string& name, const PartitionPolicy* policy,
                                         const ClusterFacts& slurm);

/// Nodes as Slurm has them, and which of them get no rank of muster's: those that NodeLost events speak of, for
/// `excluded_for` from then on. Of several losses of a node the newest counts.
std::vector<muster::v1::NodeView> node_views(const std::vector<NodeFacts>& nodes,
                                             const std::vector<store::StoredEvent>& losses, core::Millis excluded_for);

muster::v1::AuditEntry audit_view(const store::AuditRow& row);

}  // namespace runtime
