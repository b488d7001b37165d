#pragma once

#include <string>

#include "muster/v1/partition.pb.h"

namespace partitions {

using muster::v1::PartitionPolicy;

/// A policy as it is stored and audited: an object of the keys of a partitions file, those alone that are said, without
/// the name. The same policy always gives the same text.
std::string policy_to_json(const PartitionPolicy& policy);

/// The reverse. Keys that this version does not know are left out; throws std::runtime_error for anything else.
PartitionPolicy policy_from_json(const std::string& name, const std::string& json);

}  // namespace partitions
