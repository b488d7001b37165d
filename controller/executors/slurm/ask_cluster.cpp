#include "executors/slurm/ask_cluster.h"

namespace executors::on_slurm {
namespace {

std::optional<core::Millis> millis(const std::optional<std::chrono::seconds>& from) {
  return from ? std::optional(core::Millis(*from)) : std::nullopt;
}

PartitionFacts facts_of(const ::slurm::Partition& from) {
  PartitionFacts to;
  to.name = from.name;
  to.state = from.state;
  to.node_list = from.node_list;
  to.preempt_mode = from.preempt_mode;
  to.is_default = from.is_default;
  to.nodes = from.total_nodes;
  to.cpus = from.total_cpus;
  to.priority_tier = from.priority_tier;
  to.max_time = millis(from.max_time);
  to.default_time = millis(from.default_time);
  to.max_nodes = from.max_nodes;
  to.grace = core::Millis(from.grace);
  to.allow_groups = from.allow_groups;
  to.allow_accounts = from.allow_accounts;
  to.allow_qos = from.allow_qos;
  return to;
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
  NodeFacts to;
  to.name = from.name;
  to.state = state_of(from);
  to.reason = from.reason;
  to.usable = from.usable();
  to.cpus = from.cpus;
  to.cpus_used = from.cpus_used;
  to.memory_bytes = static_cast<std::int64_t>(from.memory_mib) * kMebi;
  to.memory_used_bytes = static_cast<std::int64_t>(from.memory_used_mib) * kMebi;
  to.gres = from.gres;
  to.gres_used = gres_of(from.tres_used);
  to.partitions = from.partitions;
  return to;
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
