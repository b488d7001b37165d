#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/core/job.h"
#include "controller/partitions/partition_policies.h"
#include "muster/v1/job.pb.h"

namespace admission {

/// At most `most` jobs with this key have an attempt at once.
struct Limit {
  std::string key;  // "sweep:s12", "partition:gpu/ada"
  std::uint32_t most = 0;
  std::string why, action;  // what a job that waits for a slot is told
  bool operator==(const Limit&) const = default;
};

/// What jobs of a sweep are counted under.
std::string sweep_key(const std::string& sweep);
/// What jobs of a user in a partition are counted under; of an empty user the beginning of all users' keys.
std::string partition_key(const std::string& partition, const std::string& user);

/// The limits of a job. Pure. `policies`: null where the job does not go to Slurm.
///
/// A sweep with slurm.array_parallelism leaves its limit to Slurm's arrays. Where a partition limits running jobs, jobs
/// go to Slurm one by one and not as arrays, so muster keeps that number itself.
std::vector<Limit> limits_of(const core::Job& job, const muster::v1::JobSpec& spec,
                             const partitions::PartitionPolicies* policies);

}  // namespace admission
