#include "agent/task/rank_process.h"

#include <gmock/gmock.h>

namespace agent::task {
namespace {

using testing::Contains;
using testing::Key;
using testing::Not;
using testing::Pair;

class TaskEnvironment : public testing::Test {
 protected:
  TaskEnvironment() {
    launch_.env = {{"MUSTER_JOB_ID", "7"}};
    launch_.log_folder = "/logs";
  }
  spec::Environment environment() const { return rank_environment(inherited_, launch_, place_, meeting_point_); }

  spec::Environment inherited_{{"HOME", "/home/ada"}, {"MUSTER_STARTED_AT", "1"}, {"MUSTER_OTHER", "2"}};
  protocol::TaskLaunch launch_;
  rank::RankEnvironment place_;
  std::optional<rank::Endpoint> meeting_point_;
};

TEST_F(TaskEnvironment, HasNothingOfMustersBesideWhatTheAttemptSets) {
  const auto all = environment();
  EXPECT_THAT(all, Contains(Pair("HOME", "/home/ada")));
  EXPECT_THAT(all, Contains(Pair("MUSTER_JOB_ID", "7")));
  EXPECT_THAT(all, Contains(Pair("MUSTER_STOP", "/logs/rank-0.stop.json")));
  EXPECT_THAT(all, Not(Contains(Key("MUSTER_STARTED_AT"))));
  EXPECT_THAT(all, Not(Contains(Key("MUSTER_OTHER"))));
}

TEST_F(TaskEnvironment, NamesTheSlurmJobSinceAJobThatARankSubmitsHasAnother) {
  EXPECT_THAT(environment(), Not(Contains(Key("MUSTER_SLURM_JOB"))));
  inherited_["SLURM_JOB_ID"] = "1234";
  EXPECT_THAT(environment(), Contains(Pair("MUSTER_SLURM_JOB", "1234")));
}

TEST_F(TaskEnvironment, HasTheLibrariesThatTheScriptKept) {
  inherited_["LD_LIBRARY_PATH"] = "/tasks";
  inherited_["LD_PRELOAD"] = "/tasks.so";
  EXPECT_THAT(environment(), Contains(Pair("LD_LIBRARY_PATH", "/tasks")));
  inherited_["MUSTER_RANK_LD_LIBRARY_PATH"] = "/ranks";
  inherited_["MUSTER_RANK_LD_PRELOAD"] = "";
  EXPECT_THAT(environment(), Contains(Pair("LD_LIBRARY_PATH", "/ranks")));
  EXPECT_THAT(environment(), Not(Contains(Key("LD_PRELOAD"))));
}

TEST_F(TaskEnvironment, HasTheRanksPlaceAndWhereRankZeroListens) {
  place_.rank = 3;
  place_.local_rank = place_.node_rank = 1;
  place_.world_size = 4;
  place_.local_world_size = 2;
  EXPECT_THAT(environment(), Contains(Pair("MUSTER_NODES", "2")));
  EXPECT_THAT(environment(), Not(Contains(Key("MASTER_ADDR"))));
  inherited_["SLURM_JOB_NODELIST"] = "n[1-3]";
  meeting_point_ = rank::Endpoint{"10.0.0.1", 1234};
  const auto all = environment();
  for (const auto& [name, value] : spec::Environment{{"RANK", "3"},
                                                     {"LOCAL_RANK", "1"},
                                                     {"WORLD_SIZE", "4"},
                                                     {"MUSTER_NODELIST", "n1,n2,n3"},
                                                     {"MUSTER_NODES", "3"},
                                                     {"MASTER_ADDR", "10.0.0.1"},
                                                     {"MASTER_PORT", "1234"}}) {
    EXPECT_THAT(all, Contains(Pair(name, value)));
  }
}

TEST_F(TaskEnvironment, ALauncherOfItsOwnIsToldOfNoRankOfTorchrunsNorOfSruns) {
  launch_.own_launcher = true;
  inherited_["SLURM_NTASKS"] = "2";
  inherited_["SLURM_PROCID"] = "1";
  inherited_["SLURM_JOB_ID"] = "12";
  place_.rank = place_.node_rank = 1;
  place_.world_size = 2;
  meeting_point_ = rank::Endpoint{"10.0.0.1", 1234};
  const auto all = environment();
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_NTASKS", "SLURM_PROCID"}) {
    EXPECT_THAT(all, Not(Contains(Key(name)))) << name;
  }
  for (const auto& [name, value] : spec::Environment{{"SLURM_JOB_ID", "12"},
                                                     {"NODE_RANK", "1"},
                                                     {"PET_NODE_RANK", "1"},
                                                     {"PET_NNODES", "2"},
                                                     {"PET_MASTER_ADDR", "10.0.0.1"},
                                                     {"PET_MASTER_PORT", "1234"}}) {
    EXPECT_THAT(all, Contains(Pair(name, value)));
  }
}

TEST_F(TaskEnvironment, TheJobsOwnVariablesStandAboveAllOthers) {
  launch_.env = {{"HOME", "/job"}, {"RANK", "5"}, {"LD_PRELOAD", "/job.so"}};
  inherited_["MUSTER_RANK_LD_PRELOAD"] = "/ranks.so";
  const auto all = environment();
  for (const auto& [name, value] : launch_.env) EXPECT_EQ(all.at(name), value) << name;
  EXPECT_EQ(variable_of(inherited_, launch_, "HOME"), "/job");
  EXPECT_EQ(variable_of(inherited_, launch_, "MUSTER_OTHER"), "2");
  EXPECT_EQ(variable_of(inherited_, launch_, "NOTHING"), std::nullopt);
}

}  // namespace
}  // namespace agent::task
