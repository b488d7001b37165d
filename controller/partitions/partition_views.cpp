#include "controller/partitions/partitions.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "base/numbers.h"
#include "controller/common/clock.h"
#include "controller/core/core_text.h"
#include "controller/core/event.h"
#include "spec/jobfile/job_keys.h"
#include "spec/key_names.h"

namespace partitions {
namespace {

std::string of(const PartitionPolicy& policy) {
  return "partition \"" + policy.name() + "\": ";
}

void check_limits(const PartitionPolicy& policy, const executors::PartitionFacts& slurm,
                  std::vector<std::string>& found) {
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
    found.push_back(of(policy) + name + " is " + base::print_duration_ms(time) + ", but Slurm's MaxTime is " +
                    base::print_duration_ms(slurm.max_time->count()) + "; lower it, or raise Slurm's");
  }
}

void check_preemption(const PartitionPolicy& policy, const executors::PartitionFacts& slurm,
                      std::vector<std::string>& found) {
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

void fill_facts(const executors::PartitionFacts& facts, const std::vector<executors::NodeFacts>& nodes,
                muster::v1::PartitionView& out) {
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

void fill_node(const executors::NodeFacts& facts, muster::v1::NodeView& out) {
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
  out.set_lost_at(common::time_text(event.event.at));
  out.set_excluded_until(common::time_text(event.event.at + excluded_for));
  out.set_lost_by_job(event.job);
  out.set_lost_by_attempt(core::attempt_of(event.event.body));
  const auto& lost = std::get<core::NodeLost>(event.event.body);
  out.set_lost_reason(core::node_lost_text(lost));
  if (lost.only_this_job) out.clear_excluded_until();
}

/// "gpu:fake:2(S:0-1),gpu:4" are six.
std::uint64_t gpus_of(const std::string& gres) {
  std::uint64_t all = 0;
  for (std::size_t at = 0; at < gres.size();) {
    const auto end = std::min(gres.find(',', at), gres.size());
    const auto entry = gres.substr(at, gres.find('(', at) < end ? gres.find('(', at) - at : end - at);
    at = end + 1;
    if (entry != "gpu" && !entry.starts_with("gpu:")) continue;
    const auto digits = entry.find_last_not_of("0123456789");
    const auto number = entry.substr(digits + 1);
    all += number.empty() || number.size() > 9 ? 1 : std::stoul(number);
  }
  return all;
}

/// Compares what is asked of each node with what the partition's nodes have, up or not.
std::optional<NeverStarts> too_much_for_nodes(const muster::v1::JobSpec& spec,
                                              const executors::PartitionFacts& partition,
                                              const std::vector<executors::NodeFacts>& nodes) {
  const auto& resources = spec.resources();
  const std::uint64_t ranks = resources.ranks_per_node(), cpus = ranks * std::max(1u, resources.cpus_per_rank());
  const auto bytes = std::max<std::int64_t>(
      jobfile::slurm_whole(spec, "mem"), jobfile::slurm_whole(spec, "mem_per_cpu") * static_cast<std::int64_t>(cpus));
  const bool shares_cpus = spec.slurm().options().contains("overcommit");
  struct Want {
    std::uint64_t amount;
    std::function<std::uint64_t(const executors::NodeFacts&)> has;
    std::function<std::string(std::uint64_t)> said;
    std::string keys;
  };
  constexpr std::uint64_t kMebi = 1 << 20;
  const Want wants[]{
      {shares_cpus ? 0 : cpus, [](const executors::NodeFacts& node) { return std::uint64_t{node.cpus}; },
       [](std::uint64_t count) { return core::count_text(count, "CPU"); }, "resources.ranks_per_node x cpus_per_rank"},
      {static_cast<std::uint64_t>(bytes) / kMebi,
       [](const executors::NodeFacts& node) { return static_cast<std::uint64_t>(node.memory_bytes) / kMebi; },
       [](std::uint64_t count) { return std::to_string(count) + " MiB"; }, "slurm.mem or slurm.mem_per_cpu"},
      {ranks * jobfile::gpus_of_rank(spec), [](const executors::NodeFacts& node) { return gpus_of(node.gres); },
       [](std::uint64_t count) { return core::count_text(count, "GPU"); },
       std::string("resources.ranks_per_node or ") + spec::key::kGpusOfRank}};
  for (const auto& want : wants) {
    std::uint64_t most = 0, enough = 0;
    for (const auto& node : nodes) {
      if (std::ranges::find(node.partitions, partition.name) == node.partitions.end()) continue;
      most = std::max(most, want.has(node));
      enough += want.has(node) >= want.amount ? 1 : 0;
    }
    if (enough >= resources.nodes() || most == 0) continue;
    const auto has =
        enough == 0 ? "the largest of partition \"" + partition.name + "\" has " + want.said(most)
                    : "partition \"" + partition.name + "\" has " + core::count_text(enough, "node") + " with so many";
    return NeverStarts{"it asks for " + want.said(want.amount) + " on each of " +
                           core::count_text(resources.nodes(), "node") + ", and " + has,
                       "less in " + want.keys,
                       {}};
  }
  return std::nullopt;
}

std::optional<NeverStarts> too_much_for(const muster::v1::JobSpec& spec, core::Millis limit,
                                        const executors::PartitionFacts& partition,
                                        const std::vector<executors::NodeFacts>& nodes) {
  const auto wanted = spec.resources().nodes();
  const auto most = std::min(partition.nodes, partition.max_nodes.value_or(partition.nodes));
  const auto name = "partition \"" + partition.name + "\"";
  if (partition.nodes > 0 && wanted > most) {
    return NeverStarts{"it asks for " + core::count_text(wanted, "node") + ", and " + name +
                           (most < partition.nodes ? " allows a job " : " has ") + std::to_string(most),
                       "resources.nodes at most " + std::to_string(most),
                       {}};
  }
  if (partition.max_time && limit > *partition.max_time) {
    const auto allowed = base::print_duration_ms(partition.max_time->count());
    return NeverStarts{"its time limit of " + base::print_duration_ms(limit.count()) + " is longer than the " +
                           allowed + " that " + name + " allows",
                       "resources.time_limit at most " + allowed, *partition.max_time};
  }
  return too_much_for_nodes(spec, partition, nodes);
}

}  // namespace

std::optional<NeverStarts> never_starts(const muster::v1::JobSpec& spec, core::Millis limit,
                                        const executors::ClusterFacts& slurm) {
  std::vector<std::string> names;
  const auto wanted = jobfile::slurm_text(spec, "partition");
  std::istringstream list(wanted);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  for (const auto& partition : slurm.partitions) {
    if (names.empty() && wanted.empty() && partition.is_default) names = {partition.name};
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

std::vector<std::string> misfits(const PartitionPolicy& policy, const executors::PartitionFacts* slurm) {
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
                                         const executors::ClusterFacts& slurm) {
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

std::vector<muster::v1::NodeView> node_views(const std::vector<executors::NodeFacts>& nodes,
                                             const std::vector<store::StoredEvent>& losses, core::Millis excluded_for) {
  std::map<std::string, const store::StoredEvent*> lost;
  for (const auto& event : losses) {
    const auto& body = std::get<core::NodeLost>(event.event.body);
    auto& known = lost[body.node];
    // The loss of a node for one job alone does not hide why all jobs are kept off that node.
    if (known == nullptr || !body.only_this_job || std::get<core::NodeLost>(known->event.body).only_this_job)
      known = &event;
  }
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
  out.set_at(common::time_text(row.at));
  out.set_user(row.user);
  out.set_action(row.action);
  out.set_partition(row.partition);
  out.set_before(row.before);
  out.set_after(row.after);
  return out;
}

}  // namespace partitions
