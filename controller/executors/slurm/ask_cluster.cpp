#include "controller/executors/slurm/ask_cluster.h"

namespace executors::on_slurm {
namespace {

PartitionFacts facts_of(const ::slurm::Partition& from) {
  return {.name = from.name,
          .state = from.state,
          .node_list = from.node_list,
          .preempt_mode = from.preempt_mode,
          .is_default = from.is_default,
          .nodes = from.total_nodes,
          .cpus = from.total_cpus,
          .priority_tier = from.priority_tier,
          .max_time = from.max_time,
          .default_time = from.default_time,
          .max_nodes = from.max_nodes,
          .grace = from.grace,
          .allow_groups = from.allow_groups,
          .allow_accounts = from.allow_accounts,
          .allow_qos = from.allow_qos};
}

std::string state_of(const ::slurm::Node& node) {
  std::string text;
  for (const auto& state : node.states) text += (text.empty() ? "" : "+") + state;
  return text + (node.responds ? "" : "*");
}

/// The used GPUs of "cpu=1,mem=2G,gres/gpu=1": "gpu=1".
std::string gres_of(const std::string& tres) {
  std::string text;
  for (std::size_t at = 0; at < tres.size();) {
    const auto end = std::min(tres.find(',', at), tres.size());
    const auto part = tres.substr(at, end - at);
    if (part.starts_with("gres/")) text += (text.empty() ? "" : ",") + part.substr(5);
    at = end + 1;
  }
  return text;
}

NodeFacts facts_of(const ::slurm::Node& from) {
  constexpr std::int64_t kMebi = 1 << 20;
  return {.name = from.name,
          .state = state_of(from),
          .reason = from.reason,
          .usable = from.usable(),
          .cpus = from.cpus,
          .cpus_used = from.cpus_used,
          .memory_bytes = static_cast<std::int64_t>(from.memory_mib) * kMebi,
          .memory_used_bytes = static_cast<std::int64_t>(from.memory_used_mib) * kMebi,
          .gres = from.gres,
          .gres_used = gres_of(from.tres_used),
          .partitions = from.partitions};
}

}  // namespace

ClusterFacts ask_cluster(::slurm::Scheduler& scheduler) {
  ClusterFacts facts;
  const auto partitions = scheduler.partitions();
  if (!partitions) {
    facts.unreachable = partitions.why();
    return facts;
  }
  const auto nodes = scheduler.nodes();
  if (!nodes) facts.unreachable = nodes.why();
  for (const auto& partition : *partitions) facts.partitions.push_back(facts_of(partition));
  if (!nodes) return facts;
  for (const auto& node : *nodes) facts.nodes.push_back(facts_of(node));
  return facts;
}

}  // namespace executors::on_slurm
