#include "controller/partitions/partition_policies.h"

#include <algorithm>

#include "base/numbers.h"
#include "base/words.h"
#include "controller/core/core_text.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/partition_keys.h"
#include "spec/jobfile/toml_value.h"

namespace partitions {
namespace {

using muster::v1::JobSpec;

constexpr const char* kAsk = "or ask an admin (muster partitions)";

std::string of(const std::string& partition) {
  return "slurm.partition \"" + jobfile::shown(std::string_view(partition)) + "\": ";
}

/// Refuses the job for a limit or a right.
common::Refusal limited(const std::string& partition, const std::string& why) {
  return common::Refusal::limit(of(partition) + why);
}

/// The policy's default_NAME becomes slurm.NAME of a job that sets none.
void fill_text(const PartitionPolicy& policy, const std::string& name, JobSpec& spec) {
  const auto given = jobfile::get(policy, *jobfile::find_partition_key("default_" + name));
  if (!given || !jobfile::slurm_text(spec, name).empty()) return;
  jobfile::set_slurm_text(spec, name, std::get<std::string>(*given));
}

void fill(const PartitionPolicy& policy, JobSpec& spec) {
  for (const auto& name : jobfile::partition_defaults()) {
    // A job that wants its GPUs by rank has said what it needs.
    if (name != "gres" || jobfile::gpus_of_rank(spec) == 0) fill_text(policy, name, spec);
  }
  if (spec.resources().time_limit_ms() == 0) {
    const auto time = policy.has_default_time_ms() ? policy.default_time_ms() : policy.max_time_ms();
    if (time > 0) spec.mutable_resources()->set_time_limit_ms(time);
  }
  if (policy.has_requeue()) {
    auto budgets = policy.requeue();
    budgets.MergeFrom(spec.requeue());  // the job file's replace the partition's
    *spec.mutable_requeue() = std::move(budgets);
  }
}

std::optional<common::Refusal> judge_size(const PartitionPolicy& policy, const JobSpec& spec) {
  const std::uint64_t nodes = std::max(1U, spec.resources().nodes());
  const std::uint64_t ranks = nodes * std::max(1U, spec.resources().ranks_per_node());
  const auto too_many = [&](const char* key, std::uint64_t most, std::uint64_t wanted, const std::string& remedy) {
    return limited(policy.name(), key + (" is " + std::to_string(most)) + ", the job wants " + std::to_string(wanted) +
                                      "; use at most " + remedy + ", " + kAsk);
  };
  if (policy.has_max_nodes() && nodes > policy.max_nodes()) {
    return too_many("max_nodes", policy.max_nodes(), nodes, core::count_text(policy.max_nodes(), "node"));
  }
  if (policy.has_max_ranks() && ranks > policy.max_ranks()) {
    return too_many("max_ranks", policy.max_ranks(), ranks, core::count_text(policy.max_ranks(), "rank") + " in all");
  }
  return std::nullopt;
}

}  // namespace

std::string names_text(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string PartitionPolicies::default_partition(const executors::ClusterFacts& slurm) const {
  for (const auto& [name, policy] : policies_) {
    if (policy.is_default()) return name;
  }
  for (const auto& partition : slurm.partitions) {
    if (partition.is_default) return partition.name;
  }
  return {};
}

std::string PartitionPolicies::why_not(const Applicant& who, const std::string& partition) const {
  if (policies_.empty()) return {};
  const auto* policy = find(partition);
  if (policy == nullptr) return "it has no policy, and others have";
  if (policy->users().empty() && policy->groups().empty()) return {};
  if (std::ranges::find(policy->users(), who.user) != policy->users().end()) return {};
  for (const auto& group : who.groups) {
    if (std::ranges::find(policy->groups(), group) != policy->groups().end()) return {};
  }
  return std::string("its ") +
         (policy->groups().empty()  ? "users"
          : policy->users().empty() ? "groups"
                                    : "users and groups") +
         " do not include " + who.user;
}

std::vector<std::string> PartitionPolicies::usable(const Applicant& who, const executors::ClusterFacts& slurm) const {
  std::vector<std::string> names;
  for (const auto& [name, policy] : policies_) {
    if (why_not(who, name).empty()) names.push_back(name);
  }
  if (!policies_.empty()) return names;
  for (const auto& partition : slurm.partitions) names.push_back(partition.name);
  std::ranges::sort(names);
  return names;
}

std::string PartitionPolicies::remedy(const Applicant& who, const executors::ClusterFacts& slurm) const {
  const auto names = usable(who, slurm);
  return names.empty() ? "ask an admin for one that " + who.user + " may use (muster partitions)"
                       : "you may use " + names_text(names);
}

std::optional<common::Refusal> PartitionPolicies::unknown(const Applicant& who, const executors::ClusterFacts& slurm,
                                                          const std::string& partition) const {
  const auto near = base::nearest(partition, usable(who, slurm));
  const auto* facts = slurm.find(partition);
  const bool hidden = facts != nullptr && !policies_.empty();
  const std::string what =
      hidden ? "Slurm has it, but admins have not opened it for muster" : "there is no such partition";
  const auto text =
      of(partition) + what + (near.empty() ? "" : ", did you mean \"" + near + "\"") + "; " + remedy(who, slurm);
  return hidden ? common::Refusal::limit(text) : common::Refusal::invalid(text);
}

std::optional<common::Refusal> PartitionPolicies::admit(const Applicant& who, const executors::ClusterFacts& slurm,
                                                        JobSpec& spec) const {
  auto partition = jobfile::slurm_text(spec, "partition");
  if (policies_.empty()) {
    const bool several = partition.find(',') != std::string::npos;
    if (partition.empty() || several || !slurm.known() || slurm.find(partition) != nullptr) return std::nullopt;
    return unknown(who, slurm, partition);
  }
  if (partition.empty()) {
    partition = default_partition(slurm);
    if (partition.empty()) {
      return common::Refusal::invalid("slurm.partition: want one, there is no default; " + remedy(who, slurm));
    }
  }
  if (partition.find(',') != std::string::npos) {
    return common::Refusal::invalid(of(partition) + "want one partition, since each has limits of its own; " +
                                    remedy(who, slurm));
  }
  const auto* policy = find(partition);
  if (policy == nullptr) return unknown(who, slurm, partition);
  if (const auto why = why_not(who, partition); !why.empty()) {
    return limited(partition, why + "; " + remedy(who, slurm));
  }
  jobfile::set_slurm_text(spec, "partition", partition);
  fill(*policy, spec);
  if (auto refusal = judge_size(*policy, spec)) return refusal;
  return judge_time(partition, spec.resources().time_limit_ms());
}

std::optional<common::Refusal> PartitionPolicies::judge_time(const std::string& partition,
                                                             std::int64_t time_limit_ms) const {
  const auto* policy = find(partition);
  if (policy == nullptr || !policy->has_max_time_ms()) return std::nullopt;
  if (time_limit_ms > 0 && time_limit_ms <= policy->max_time_ms()) return std::nullopt;
  const auto most = base::print_duration_ms(policy->max_time_ms());
  const auto wanted = time_limit_ms > 0 ? base::print_duration_ms(time_limit_ms) : "no limit";
  return limited(partition, "max_time is " + most + ", the job wants " + wanted +
                                "; set resources.time_limit to at most " + most + ", " + kAsk);
}

std::optional<common::Refusal> PartitionPolicies::judge_waiting(const std::string& partition, const std::string& user,
                                                                std::uint32_t waiting, std::uint32_t more) const {
  const auto* policy = find(partition);
  if (policy == nullptr || !policy->has_max_queued_jobs_per_user()) return std::nullopt;
  const auto most = policy->max_queued_jobs_per_user();
  if (std::uint64_t{waiting} + more <= most) return std::nullopt;
  return limited(partition, "max_queued_jobs_per_user is " + std::to_string(most) + ", and " +
                                core::count_text(waiting, "job") + " of " + user + (waiting == 1 ? " waits" : " wait") +
                                " there" + (more > 1 ? ", " + std::to_string(more) + " more would be too many" : "") +
                                "; wait until one starts or cancel one, " + kAsk);
}

}  // namespace partitions
