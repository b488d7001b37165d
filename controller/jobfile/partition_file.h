#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "muster/v1/partition.pb.h"

namespace jobfile {

/// What a partitions file says: a [partition.NAME] table for each, with the keys of partition_keys().
struct PartitionFile {
  std::vector<muster::v1::PartitionPolicy> policies;  // by name; only to be used without problems
  std::vector<std::string>
      problems;  // lines for people, each with its place: `partitions.toml:4:1: max_nodes "x": ...`
};

inline constexpr std::size_t kMostPartitionFileBytes = 1 << 20;
inline constexpr std::size_t kMostPartitions = 1000;

/// Strict: unknown keys, wrong types, values out of range and what contradicts itself are problems, all of them at once
/// (the first kMostProblems are told). `name` stands for the file in them.
PartitionFile parse_partition_file(std::string_view text, const std::string& name);

}  // namespace jobfile
