#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/common/outcome.h"
#include "controller/executors/executor.h"
#include "muster/v1/job.pb.h"
#include "muster/v1/partition.pb.h"

namespace partitions {

using muster::v1::PartitionPolicy;

/// Who asks.
struct Applicant {
  std::string user;
  std::vector<std::string> groups;
};

/// Rules of admins: policies by partition. Pure: it asks nobody, and the same questions get the same answers.
///
/// Without any policy every partition of Slurm may be used. With one, only those that have a policy.
class PartitionPolicies {
 public:
  PartitionPolicies() = default;
  explicit PartitionPolicies(std::vector<PartitionPolicy> policies) {
    for (auto& policy : policies) put(std::move(policy));
  }

  /// Adds the policy, or replaces the one that its partition has.
  void put(PartitionPolicy policy) {
    auto name = policy.name();
    policies_.insert_or_assign(std::move(name), std::move(policy));
  }
  /// Removes the partition's policy. Changes nothing if it has none.
  void remove(const std::string& partition) { policies_.erase(partition); }

  bool empty() const { return policies_.empty(); }
  const std::map<std::string, PartitionPolicy>& policies() const { return policies_; }
  /// Null: it has none.
  const PartitionPolicy* find(const std::string& partition) const {
    const auto found = policies_.find(partition);
    return found == policies_.end() ? nullptr : &found->second;
  }

  // Refusals are kLimit for a limit or a right, and kInvalid where the job file is wrong.

  /// Gives a job without a partition the one it goes to (the default; else Slurm's), fills what it leaves out from the
  /// policy, and then judges it. `spec` is as the job file has it: its own defaults are not filled in yet.
  std::optional<common::Refusal> admit(const Applicant& who, const executors::ClusterFacts& slurm,
                                       muster::v1::JobSpec& spec) const;
  /// Judges whether a job of that partition may have this time limit.
  std::optional<common::Refusal> judge_time(const std::string& partition, std::int64_t time_limit_ms) const;
  /// Judges whether so many `more` jobs of a user may wait beside those that wait already.
  std::optional<common::Refusal> judge_waiting(const std::string& partition, const std::string& user,
                                               std::uint32_t waiting, std::uint32_t more) const;

  /// Empty: this user may. Otherwise why not.
  std::string why_not(const Applicant& who, const std::string& partition) const;
  /// Those that this user may use, by name.
  std::vector<std::string> usable(const Applicant& who, const executors::ClusterFacts& slurm) const;
  /// The one that jobs without a partition go to; empty: nobody says.
  std::string default_partition(const executors::ClusterFacts& slurm) const;

 private:
  std::optional<common::Refusal> unknown(const Applicant& who, const executors::ClusterFacts& slurm,
                                         const std::string& partition) const;
  std::string remedy(const Applicant& who, const executors::ClusterFacts& slurm) const;

  std::map<std::string, PartitionPolicy> policies_;
};

/// A list of names for a sentence: "big, main"; "none" if there are none.
std::string names_text(const std::vector<std::string>& names);

}  // namespace partitions
