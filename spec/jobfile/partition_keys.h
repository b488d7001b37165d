#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/v1/partition.pb.h"
#include "spec/jobfile/job_keys.h"

namespace jobfile {

using muster::v1::PartitionPolicy;

/// Every key of a partition's policy. As with job_keys(), this table is the only list: the partitions file, the options
/// of `muster admin partition`, the stored form and the shown form come from it. Keys of kind kWords hold names, keys
/// of kind kLines shell lines.
std::span<const Key> partition_keys();
/// The keys of [slurm] that a partition has a default for, without their table: "account" for default_account.
const std::vector<std::string>& partition_defaults();
/// Null: there is no such key.
const Key* find_partition_key(std::string_view key);
/// The key that `wrong` was most likely meant to be; empty if none is near.
std::string nearest_partition_key(std::string_view wrong);

/// True for fields that take several values.
bool is_list(const Key& field);
void clear(PartitionPolicy& policy, const Key& field);
/// The field's values as people write them; empty: the policy has none.
std::vector<std::string> texts(const PartitionPolicy& policy, const Key& field);
/// Replaces the field's values. Returns an empty text, or what is wanted instead, as a text that follows "want".
std::string put(PartitionPolicy& policy, const Key& field, const std::vector<std::string>& values);

/// 1 to 64 letters, digits, ".", "_", "-".
bool is_partition_name(std::string_view name);

/// The policy's contradictions: `default_time "2h": want at most max_time, ...`.
std::vector<std::string> contradictions(const PartitionPolicy& policy);

}  // namespace jobfile
