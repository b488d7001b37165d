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

/// A parsed partitions file. It has a table [partition.NAME] for each partition, with the keys of partition_keys().
struct PartitionFile {
  std::vector<muster::v1::PartitionPolicy> policies;  // ordered by name; do not use them if there are problems
  std::vector<std::string>
      problems;  // lines for people, each with its place: `partitions.toml:4:1: max_nodes "x": ...`
};

inline constexpr std::size_t kMostPartitionFileBytes = 1 << 20;
inline constexpr std::size_t kMostPartitions = 1000;

/// Parses and checks the text. Unknown keys, wrong types, values out of range and contradictions are problems. All
/// problems are found at once, and the first kMostProblems are returned. They call the file `name`.
PartitionFile parse_partition_file(std::string_view text, const std::string& name);

}  // namespace jobfile
