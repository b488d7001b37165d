#include "runtime/partitions/partition_views.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "core/event.h"
#include "runtime/views.h"
#include "spec/units.h"

namespace runtime {
namespace {

std::string of(const PartitionPolicy& policy) {
  return "partition \"" + policy.name() + "\": ";
}

void check_limits(const PartitionPolicy& policy, const PartitionFacts& slurm, std::vector<std::string>& found) {
  if (slurm.max_nodes && policy.has_max_nodes() && policy.max_nodes() > *slurm.max_nodes) {
    found.push_back(of(policy) + "max_nodes is " + std::to_string(policy.max_nodes()) + ", but Slurm's MaxNodes is " +
                    std::to_string(*slurm.max_nodes) + "; lower it, or raise Slurm's");
  }
  if (policy.has_max_nodes() && policy.max_nodes() > slurm.nodes) {
    found.push_back(of(policy) + "max_nodes is " + std::to_string(policy.max_nodes()) + ", but Slurm has " +
                    std::to_string(slurm.nodes) + " nodes there; lower it");
  }
  for (const auto& [name, time] :
       {std::pair("max_time", policy.max_time_ms()), std::pair("default_time", policy.default_time_ms())}) {
    if (!slurm.max_time || time <= slurm.max_time->count()) continue;
    found.push_back(of(policy) + name + " is " + spec::print_duration_ms(time) + ", but Slurm's MaxTime is " +
                    spec::print_duration_ms(slurm.max_time->count()) + "; lower it, or raise Slurm's");
  }
}

void check_preemption(const PartitionPolicy& policy, const PartitionFacts& slurm, std::vector<std::string>& found) {
  const bool preempts = !slurm.preempt_mode.empty() && slurm.preempt_mode != "OFF";
  if (policy.preemptible() && !preempts) {
    found.push_back(of(policy) + "preemptible is true, but Slurm preempts nothing there (PreemptMode=OFF); set " +
                    "PreemptMode=REQUEUE in slurm.conf, or preemptible to false");
  }
  if (policy.has_preemptible() && !policy.preemptible() && preempts) {
    found.push_back(of(policy) + "preemptible is false, but Slurm may preempt there (PreemptMode=" +
                    slurm.preempt_mode + "); set preemptible to true, or PreemptMode=OFF in slurm.conf");
  }
}

void check_names(const std::string& what, const std::string& wanted, const std::vector<std::string>& allowed,
                 const PartitionPolicy& policy, std::vector<std::string>& found) {
  if (wanted.empty() || allowed.empty() || std::ranges::find(allowed, wanted) != allowed.end()) return;
  found.push_back(of(policy) + what + " is \"" + wanted + "\", but Slurm allows only " + names_text(allowed) +
                  " there; use one of them");
}

void fill_facts(const PartitionFacts& facts, const std::vector<NodeFacts>& nodes, muster::v1::PartitionView& out) {
  out.set_in_slurm(true);
  out.set_state(facts.state);
  out.set_slurm_default(facts.is_default);
  out.set_nodes(facts.nodes);
  out.set_cpus(facts.cpus);
  out.set_node_list(facts.node_list);
  if (facts.max_time) out.set_slurm_max_time_ms(facts.max_time->count());
  if (facts.default_time) out.set_slurm_default_time_ms(facts.default_time->count());
  out.set_slurm_max_nodes(facts.max_nodes.value_or(0));
  out.set_preempt_mode(facts.preempt_mode);
  out.set_grace_ms(facts.grace.count());
  out.set_priority_tier(facts.priority_tier);
  out.mutable_allow_groups()->Assign(facts.allow_groups.begin(), facts.allow_groups.end());
  out.mutable_allow_accounts()->Assign(facts.allow_accounts.begin(), facts.allow_accounts.end());
  out.mutable_allow_qos()->Assign(facts.allow_qos.begin(), facts.allow_qos.end());
  for (const auto& node : nodes) {
    if (std::ranges::find(node.partitions, facts.name) == node.partitions.end()) continue;
    if (!node.usable) {
      out.set_nodes_down(out.nodes_down() + 1);
    } else if (node.cpus_used > 0) {
      out.set_nodes_used(out.nodes_used() + 1);
    } else {
      out.set_nodes_idle(out.nodes_idle() + 1);
    }
  }
}

void fill_node(const NodeFacts& facts, muster::v1::NodeView& out) {
  out.set_name(facts.name);
  out.set_state(facts.state);
  out.set_reason(facts.reason);
  out.set_cpus(facts.cpus);
  out.set_cpus_used(facts.cpus_used);
  out.set_memory_bytes(facts.memory_bytes);
  out.set_memory_used_bytes(facts.memory_used_bytes);
  out.set_gres(facts.gres);
  out.set_gres_used(facts.gres_used);
  out.mutable_partitions()->Assign(facts.partitions.begin(), facts.partitions.end());
}

void fill_loss(const store::StoredEvent& event, core::Millis excluded_for, muster::v1::NodeView& out) {
  out.set_lost_at(time_text(event.event.at));
  out.set_excluded_until(time_text(event.event.at + excluded_for));
  out.set_lost_by_job(event.job);
  out.set_lost_by_attempt(core::attempt_of(event.event.body));
  out.set_lost_reason(event.text);
}

}  // namespace

std::optional<NeverStarts> never_starts(const muster::v1::JobSpec& spec, core::Millis limit,
                                        const ClusterFacts& slurm) {
  std::vector<std::string> names;
  std::istringstream list(spec.slurm().partition());
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  for (const auto& partition : slurm.partitions) {
    if (names.empty() && spec.slurm().partition().empty() && partition.is_default) names = {partition.name};
  }
  std::optional<NeverStarts> first;
  for (const auto& name : names) {
    const auto* partition = slurm.find(name);
    const auto verdict = partition == nullptr ? std::nullopt : too_much_for(spec, limit, *partition, slurm.nodes);
    if (!verdict) return std::nullopt;
    if (!first) first = verdict;
  }
  return first;
}

std::vector<std::string> misfits(const PartitionPolicy& policy, const PartitionFacts* slurm) {
  std::vector<std::string> found;
  if (slurm == nullptr) {
    return {of(policy) + "Slurm has no such partition; add it to slurm.conf, or remove it here"};
  }
  if (slurm->state != "UP") {
    found.push_back(of(policy) + "it is " + slurm->state + " in Slurm; scontrol update PartitionName=" + policy.name() +
                    " State=UP opens it");
  }
  check_limits(policy, *slurm, found);
  check_preemption(policy, *slurm, found);
  check_names("default_account", policy.default_account(), slurm->allow_accounts, policy, found);
  check_names("default_qos", policy.default_qos(), slurm->allow_qos, policy, found);
  return found;
}

muster::v1::PartitionView partition_view(const std::string& name, const PartitionPolicy* policy,
                                         const ClusterFacts& slurm) {
  muster::v1::PartitionView out;
  out.set_name(name);
  if (policy != nullptr) *out.mutable_policy() = *policy;
  const auto* facts = slurm.find(name);
  if (facts != nullptr) fill_facts(*facts, slurm.nodes, out);
  if (policy == nullptr) return out;
  if (slurm.known()) {
    for (auto& problem : misfits(*policy, facts)) out.add_problems(std::move(problem));
  } else if (!slurm.unreachable.empty()) {
    out.add_problems(of(*policy) + "Slurm could not be asked about it yet: " + slurm.unreachable);
  }
  return out;
}

std::vector<muster::v1::NodeView> node_views(const std::vector<NodeFacts>& nodes,
                                             const std::vector<store::StoredEvent>& losses, core::Millis excluded_for) {
  std::map<std::string, const store::StoredEvent*> lost;
  for (const auto& event : losses) lost[std::get<core::NodeLost>(event.event.body).node] = &event;
  std::vector<muster::v1::NodeView> views;
  for (const auto& node : nodes) {
    fill_node(node, views.emplace_back());
    const auto found = lost.find(node.name);
    if (found == lost.end()) continue;
    fill_loss(*found->second, excluded_for, views.back());
    lost.erase(found);
  }
  // Slurm could not be asked, or has forgotten them.
  for (const auto& [name, event] : lost) {
    views.emplace_back().set_name(name);
    fill_loss(*event, excluded_for, views.back());
  }
  return views;
}

muster::v1::AuditEntry audit_view(const store::AuditRow& row) {
  muster::v1::AuditEntry out;
  out.set_id(row.id);
  out.set_at(time_text(row.at));
  out.set_user(row.user);
  out.set_action(row.action);
  out.set_partition(row.partition);
  out.set_before(row.before);
  out.set_after(row.after);
  return out;
}

}  // namespace runtime
