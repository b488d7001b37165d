// Goal: which limits concern a job, and which leave it to Slurm.
// Method: the pure function.
#include "controller/admission/ledger.h"
#include "spec/jobfile/job_keys.h"

#include <gmock/gmock.h>

namespace admission {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

core::Job job_of(std::uint32_t parallel) {
  core::Job job;
  job.id = 1;
  job.user = "ada";
  job.sweep = {"s12", 0, parallel};
  return job;
}

muster::v1::JobSpec spec_for(const std::string& partition, std::uint32_t array_parallelism = 0) {
  muster::v1::JobSpec spec;
  jobfile::set_slurm_text(spec, "partition", partition);
  jobfile::set(spec, *jobfile::find_key("slurm.array_parallelism"), std::int64_t{array_parallelism});
  return spec;
}

partitions::PartitionPolicies limiting(const std::string& partition, std::uint32_t most) {
  muster::v1::PartitionPolicy policy;
  policy.set_name(partition);
  policy.set_max_running_jobs_per_user(most);
  return partitions::PartitionPolicies({policy});
}

std::vector<std::string> keys(const std::vector<Limit>& limits) {
  std::vector<std::string> found;
  for (const auto& limit : limits) found.push_back(limit.key + " " + std::to_string(limit.most));
  return found;
}

TEST(Limits, AreOfTheSweepAndOfThePartition) {
  const auto policies = limiting("gpu", 3);
  EXPECT_THAT(keys(limits_of(job_of(0), spec_for("gpu"), nullptr)), IsEmpty());
  EXPECT_THAT(keys(limits_of(job_of(2), spec_for("gpu"), nullptr)), ElementsAre("sweep:s12 2"));
  EXPECT_THAT(keys(limits_of(job_of(0), spec_for("gpu"), &policies)), ElementsAre("partition:gpu/ada 3"));
  EXPECT_THAT(keys(limits_of(job_of(2), spec_for("gpu"), &policies)),
              ElementsAre("sweep:s12 2", "partition:gpu/ada 3"));
  EXPECT_THAT(keys(limits_of(job_of(2), spec_for("cpu"), &policies)), ElementsAre("sweep:s12 2"));
  auto alone = job_of(2);
  alone.sweep.sweep.clear();
  EXPECT_THAT(keys(limits_of(alone, spec_for("cpu"), &policies)), IsEmpty());
}

// Where admins limit running jobs there are no arrays that could keep the number.
TEST(Limits, WithArrayParallelismSlurmLimitsTheSweepUnlessItsJobsGoOneByOne) {
  const auto policies = limiting("gpu", 3);
  EXPECT_THAT(keys(limits_of(job_of(0), spec_for("cpu", 2), &policies)), IsEmpty());
  EXPECT_THAT(keys(limits_of(job_of(0), spec_for("gpu", 2), &policies)),
              ElementsAre("sweep:s12 2", "partition:gpu/ada 3"));
}

}  // namespace
}  // namespace admission
