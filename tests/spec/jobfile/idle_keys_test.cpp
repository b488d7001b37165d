// Goal: a person is told of each key in the job file that has no effect.
#include "spec/jobfile/spec.h"

#include <gmock/gmock.h>

#include "spec/jobfile/job_keys.h"

namespace jobfile {
namespace {

using muster::v1::JobSpec;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobSpec program_with(const std::vector<std::pair<std::string, std::string>>& keys) {
  JobSpec job;
  job.mutable_command()->add_argv("true");
  for (const auto& [key, value] : keys) {
    const auto& field = *find_key(key);
    set(job, field, parse(field, value).value());
  }
  return job;
}

TEST(IdleKeys, OfAProgramAreThoseThatOnlyMusterWorkerOrReportsCanHeed) {
  auto job = program_with({{"liveness.hung_after", "5s"},
                           {"requeue.max_rank_hung", "7"},
                           {"liveness.join_within", "5s"},
                           {"checkpoint.keep", "9"},
                           {"liveness.silent_after", "20s"},
                           {"requeue.max_failed", "9"}});
  const std::string steps =
      "liveness.hung_after, requeue.max_rank_hung have no effect while this program reports no steps";
  const std::string never = "liveness.join_within, checkpoint.keep have no effect on a program of your own";
  EXPECT_THAT(idle_keys(job, false, false), ElementsAre(steps, never));
  EXPECT_THAT(idle_keys(job, true, false), ElementsAre(never));
  fill_defaults(job);
  EXPECT_THAT(idle_keys(job, false, false), ElementsAre(steps, never)) << "as stored";
}

TEST(IdleKeys, AThrottleOfArraysIsForSweeps) {
  for (const bool is_command : {true, false}) {
    auto job = program_with({{"slurm.array_parallelism", "2"}});
    if (!is_command) job.mutable_recipe();
    EXPECT_THAT(idle_keys(job, false, false),
                ElementsAre("slurm.array_parallelism has no effect on a job that is not of a sweep"));
    job.mutable_sweep()->set_index(0);
    EXPECT_THAT(idle_keys(job, false, false), IsEmpty());
  }
}

TEST(IdleKeys, OfLocalProcessesAreThoseOfSlurm) {
  auto job = program_with({{"slurm.partition", "gpu"}, {"slurm.array_parallelism", "2"}});
  job.mutable_sweep()->set_index(0);
  EXPECT_THAT(idle_keys(job, false, true), ElementsAre("slurm.partition has no effect on local processes"));
  (*job.mutable_slurm()->mutable_options())["comment"] = "x";
  job.mutable_slurm()->add_setup("module load a");
  EXPECT_THAT(idle_keys(job, false, true),
              ElementsAre("slurm.partition, slurm.setup, slurm.options.comment have no effect on local processes"));
  EXPECT_THAT(idle_keys(job, false, false), IsEmpty());
  fill_defaults(job);
  job.clear_slurm();
  EXPECT_THAT(idle_keys(job, false, true), IsEmpty());
}

TEST(IdleKeys, OfLocalProcessesAreThoseOfRanksThatMustBeHeard) {
  auto job = program_with({{"liveness.lost_after", "1h"}});
  EXPECT_THAT(idle_keys(job, true, true),
              ElementsAre("liveness.lost_after has no effect on local processes of a program of your own"));
  EXPECT_THAT(idle_keys(job, true, false), IsEmpty()) << "the tasks beside its ranks are heard";
}

TEST(IdleKeys, DefaultsAreNobodysWish) {
  auto job = program_with({{"liveness.silent_after", "20s"}, {"liveness.join_within", "2m"}});
  EXPECT_THAT(idle_keys(job, false, false), IsEmpty());
  fill_defaults(job);
  EXPECT_THAT(idle_keys(job, false, false), IsEmpty());
  JobSpec recipe;
  recipe.mutable_recipe();
  recipe.mutable_liveness()->set_hung_after_ms(5000);
  EXPECT_THAT(idle_keys(recipe, false, false), IsEmpty());
}

}  // namespace
}  // namespace jobfile
