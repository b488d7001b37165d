#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jobfile/job_keys.h"
#include "muster/v1/partition.pb.h"

namespace jobfile {

using muster::v1::PartitionPolicy;

/// Everything that can be said about a partition, but for its name. As with job_keys(), this table is the only list:
/// the partitions file, the options of `muster admin partition`, what is stored and what is shown are made from it.
/// `path` is in PartitionPolicy; kWords are names, kLines shell lines.
std::span<const Key> partition_keys();
/// nullptr: there is no such key.
const Key* find_partition_key(std::string_view key);
/// The key that `wrong` was most likely meant to be; empty if none is near.
std::string nearest_partition_key(std::string_view wrong);

/// True for fields that take several values.
bool is_list(const Key& field);
bool has(const PartitionPolicy& policy, const Key& field);
void clear(PartitionPolicy& policy, const Key& field);
/// The values as people write them; empty if there are none.
std::vector<std::string> texts(const PartitionPolicy& policy, const Key& field);
/// Puts these values in the place of those there were. Empty: done. Otherwise what is wanted instead, to follow "want".
std::string put(PartitionPolicy& policy, const Key& field, const std::vector<std::string>& values);

/// Of the two policies, takes from `from` what `key`'s field says there, absent values too.
void copy_field(PartitionPolicy& to, const Key& field, const PartitionPolicy& from);

/// 1 to 64 letters, digits, ".", "_", "-".
bool is_partition_name(std::string_view name);

/// What in one policy contradicts itself: `max_time "1h": ...`; empty if nothing does.
std::vector<std::string> contradictions(const PartitionPolicy& policy);

}  // namespace jobfile
