#include "controller/executors/slurm/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "tests/controller/core/golden.h"

namespace executors::on_slurm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Everything that a job file can ask for, with the user's own words as hostile as they can be.
LaunchRequest hostile() {
  LaunchRequest r;
  r.key = {7, 1};
  r.attempt_folder = "/data/jobs/7/attempt-1";
  r.job_name = "it's; $(reboot)\n#SBATCH --exclusive";
  r.argv = {"/bin/sh", "-c", "$(touch /hostile)"};
  r.env = {{"HOSTILE", "`reboot`"}};
  r.working_folder = "/home/me/a b";
  r.nodes = 2;
  r.ranks_per_node = 4;
  r.time_limit = core::Millis(90'000);
  r.stop_grace = core::Millis(30'000);
  r.exclude_nodes = {"node7", "node8"};
  r.slurm.setup = {"module load x"};
  r.slurm.teardown = {"rm -rf /scratch/$SLURM_JOB_ID"};
  r.slurm.srun_args = {"--cpu-bind=cores"};
  r.slurm.options = {
      {"partition", "low"},   {"account", "physics"},      {"mem", "2M"}, {"wckey", "a"}, {"cpus-per-task", "3"},
      {"gpus-per-task", "1"}, {"contiguous", std::nullopt}};
  return r;
}

TEST(GoldenScripts, OneAttempt) {
  test::expect_golden("slurm_attempt.sh",
                      ::slurm::render(plan_script(hostile(), {"/opt/muster-agent"}, "muster:s:7.1")));
}

TEST(GoldenScripts, SeveralAsAnArray) {
  auto first = hostile(), second = hostile();
  second.key.job = 8;
  first.slurm.array_parallelism = second.slurm.array_parallelism = 1;
  test::expect_golden("slurm_array.sh",
                      ::slurm::render(plan_array({first, second}, {"/opt/muster-agent"}, "muster:s:set.7.1",
                                                 "/data/slurm/set-7.1/set.json")));
}

TEST(ScriptPlan, HoldsNothingOfTheUsersThatAShellWouldRun) {
  const auto text = ::slurm::render(plan_script(hostile(), {"/opt/muster-agent"}, "muster:s:7.1"));
  EXPECT_THAT(text, Not(HasSubstr("/hostile"))) << "arguments travel in task_launch.json";
  EXPECT_THAT(text, Not(HasSubstr("`reboot`"))) << "and so does the environment";
  EXPECT_THAT(text, Not(HasSubstr("\n#SBATCH --exclusive"))) << "a name is one line";
}

TEST(ScriptPlan, StartsTheTaskWithTheLibrariesOfMusterdAndKeepsTheJobsForTheRank) {
  const auto text = ::slurm::render(plan_script(hostile(), {"/opt/muster-agent", "/opt/gcc's/lib"}, "c"));
  const auto start = text.find("/bin/sh -c ");
  ASSERT_NE(start, std::string::npos) << text;
  const auto line = text.substr(start, text.find(" &\n", start) - start);
  // A shell runs the line, with printenv in place of muster-agent.
  const auto program = line.find("/opt/muster-agent");
  const auto shown =
      "LD_LIBRARY_PATH=/old/conda LD_PRELOAD= bash -c " +
      ::slurm::bash_quote(line.substr(0, program) + "/usr/bin/printenv LD_LIBRARY_PATH MUSTER_RANK_LD_LIBRARY_PATH");
  FILE* pipe = ::popen(shown.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 256> out{};
  const auto size = ::fread(out.data(), 1, out.size(), pipe);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_EQ(std::string(out.data(), size), "/opt/gcc's/lib\n/old/conda\n");
}

TEST(ScriptPlan, AnArrayIsCalledByTheNameThatItsJobsShare) {
  auto first = hostile(), second = hostile();
  first.job_name = "tune-0007";
  second.job_name = "tune-0008";
  const auto script = ::slurm::render(plan_array({first, second}, {"/t"}, "c", "/data/slurm/set-7.1/set.json"));
  EXPECT_THAT(script, HasSubstr("--job-name=tune\n"));
  first.job_name = "tune-fast";
  EXPECT_THAT(::slurm::render(plan_array({first, second}, {"/t"}, "c", "/s/set.json")),
              HasSubstr("--job-name=tune-fast\n"));
}

TEST(ScriptPlan, ExcludesTheUsersNodesAndThoseLostLatelyOnceEach) {
  auto request = hostile();
  request.slurm.options["exclude"] = "node[6-7]";
  EXPECT_THAT(::slurm::render(plan_script(request, {"/t"}, "c")), HasSubstr("--exclude=\"node[6-8]\""));
}

TEST(ScriptPlan, RoundsTimeLimitsUpToSlurmsMinutes) {
  using std::chrono::minutes;
  EXPECT_EQ(slurm_minutes(core::Millis(0)), minutes(0)) << "none";
  EXPECT_EQ(slurm_minutes(core::Millis(1)), minutes(1));
  EXPECT_EQ(slurm_minutes(core::Millis(60'000)), minutes(1));
  EXPECT_EQ(slurm_minutes(core::Millis(60'001)), minutes(2));
}

TEST(ScriptPlan, OnlyAttemptsThatAskSlurmForTheSameFitOneArray) {
  const auto one = hostile();
  auto other = hostile();
  other.key.job = 8;
  other.argv = {"/bin/false"};
  other.env = {{"STEP", "2"}};
  EXPECT_TRUE(same_shape(one, other)) << "what differs travels in task_launch.json";
  const std::vector<std::function<void(LaunchRequest&)>> changes{
      [](LaunchRequest& r) { r.nodes = 3; },
      [](LaunchRequest& r) { r.ranks_per_node = 1; },
      [](LaunchRequest& r) { r.slurm.options.erase("gpus-per-task"); },
      [](LaunchRequest& r) { r.time_limit = core::Millis(1); },
      [](LaunchRequest& r) { r.slurm.options["partition"] = "high"; },
      [](LaunchRequest& r) { r.exclude_nodes = {}; },
  };
  for (const auto& change : changes) {
    auto changed = hostile();
    change(changed);
    EXPECT_FALSE(same_shape(one, changed));
  }
}

}  // namespace
}  // namespace executors::on_slurm
