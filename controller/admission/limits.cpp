#include "controller/admission/limits.h"

#include "controller/common/wait.h"
#include "spec/jobfile/job_keys.h"

namespace admission {
namespace {

Limit sweep_limit(const std::string& sweep, std::uint32_t most) {
  return {sweep_key(sweep), most,
          "waits for its turn: at most " + std::to_string(most) + " of sweep " + sweep + " have an attempt at once",
          common::kStartsByItself};
}

Limit partition_limit(const muster::v1::PartitionPolicy& policy, const std::string& user) {
  const auto most = policy.max_running_jobs_per_user();
  return {partition_key(policy.name(), user), most,
          "partition \"" + policy.name() + "\" allows " + user + " " + std::to_string(most) +
              (most == 1 ? " job" : " jobs") + " at once (max_running_jobs_per_user), and so many are with Slurm",
          "It starts by itself when one of them ends; muster list --state running --state queued shows them"};
}

}  // namespace

std::string sweep_key(const std::string& sweep) {
  return "sweep:" + sweep;
}

std::string partition_key(const std::string& partition, const std::string& user) {
  return "partition:" + partition + "/" + user;
}

std::vector<Limit> limits_of(const core::Job& job, const muster::v1::JobSpec& spec,
                             const partitions::PartitionPolicies* policies) {
  std::vector<Limit> limits;
  const auto* policy = policies == nullptr ? nullptr : policies->find(jobfile::slurm_text(spec, "partition"));
  const bool limits_running = policy != nullptr && policy->has_max_running_jobs_per_user();
  auto parallel = job.sweep.parallel;
  if (parallel == 0 && limits_running)
    parallel = static_cast<std::uint32_t>(jobfile::slurm_whole(spec, "array_parallelism"));
  if (!job.sweep.sweep.empty() && parallel > 0) limits.push_back(sweep_limit(job.sweep.sweep, parallel));
  if (limits_running) limits.push_back(partition_limit(*policy, job.user));
  return limits;
}

}  // namespace admission
