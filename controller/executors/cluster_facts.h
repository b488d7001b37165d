#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/core/types.h"

namespace executors {

/// What a scheduler says of one of its partitions.
struct PartitionFacts {
  std::string name, state, node_list, preempt_mode;
  bool is_default = false;
  std::uint32_t nodes = 0, cpus = 0, priority_tier = 0;
  std::optional<core::Millis> max_time, default_time;  // nothing: unlimited; max_time
  std::optional<std::uint32_t> max_nodes;              // nothing: unlimited
  core::Millis grace{0};
  std::vector<std::string> allow_groups, allow_accounts, allow_qos;  // empty: all
  bool operator==(const PartitionFacts&) const = default;
};

/// What a scheduler says of one of its nodes.
struct NodeFacts {
  std::string name, state, reason;  // state: "MIXED+DRAIN"; "*" at the end: it does not answer
  bool usable = true;               // up and not drained
  std::uint32_t cpus = 0, cpus_used = 0;
  std::int64_t memory_bytes = 0, memory_used_bytes = 0;
  std::string gres, gres_used;
  std::vector<std::string> partitions;
  bool operator==(const NodeFacts&) const = default;
};

/// A cluster as its scheduler described it last.
struct ClusterFacts {
  std::vector<PartitionFacts> partitions;
  std::vector<NodeFacts> nodes;
  std::string unreachable;  // not empty: why it could not be asked now; the rest is old, or missing

  const PartitionFacts* find(const std::string& name) const {
    for (const auto& partition : partitions) {
      if (partition.name == name) return &partition;
    }
    return nullptr;
  }
  /// False: nothing was ever heard.
  bool known() const { return !partitions.empty(); }
};

}  // namespace executors
