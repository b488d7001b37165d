#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/v1/partition.pb.h"

namespace jobfile {

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
