#include "agent/program/rank_environment.h"

#include <gmock/gmock.h>

namespace agent::program {
namespace {

using testing::Contains;
using testing::Key;
using testing::Not;
using testing::Pair;

class OnSlurm : public testing::Test {
 protected:
  OnSlurm() {
    agent_.inherited = {{"HOME", "/home/ada"}, {"MUSTER_STARTED_AT", "1"}, {"MUSTER_OTHER", "2"}};
    agent_.launch.env = {{"MUSTER_JOB_ID", "7"}};
    agent_.launch.log_folder = "/logs";
  }
  spec::Environment environment() const {
    const auto beside = ranks_beside(agent_, own_);
    EXPECT_EQ(beside.size(), 1U);
    return rank_environment(agent_, beside.front(), meeting_point_);
  }

  AgentPlace agent_;
  rank::RankEnvironment own_;
  std::optional<rank::Endpoint> meeting_point_;
};

TEST_F(OnSlurm, HasNothingOfMustersBesideWhatTheAttemptSets) {
  const auto all = environment();
  EXPECT_THAT(all, Contains(Pair("HOME", "/home/ada")));
  EXPECT_THAT(all, Contains(Pair("MUSTER_JOB_ID", "7")));
  EXPECT_THAT(all, Contains(Pair("MUSTER_STOP", "/logs/rank-0.stop.json")));
  EXPECT_THAT(all, Not(Contains(Key("MUSTER_STARTED_AT"))));
  EXPECT_THAT(all, Not(Contains(Key("MUSTER_OTHER"))));
}

TEST_F(OnSlurm, NamesTheSlurmJobSinceAJobThatARankSubmitsHasAnother) {
  EXPECT_THAT(environment(), Not(Contains(Key("MUSTER_SLURM_JOB"))));
  agent_.inherited["SLURM_JOB_ID"] = "1234";
  EXPECT_THAT(environment(), Contains(Pair("MUSTER_SLURM_JOB", "1234")));
}

TEST_F(OnSlurm, HasTheLibrariesThatTheScriptKept) {
  agent_.inherited["LD_LIBRARY_PATH"] = "/tasks";
  agent_.inherited["LD_PRELOAD"] = "/tasks.so";
  EXPECT_THAT(environment(), Contains(Pair("LD_LIBRARY_PATH", "/tasks")));
  agent_.inherited["MUSTER_RANK_LD_LIBRARY_PATH"] = "/ranks";
  agent_.inherited["MUSTER_RANK_LD_PRELOAD"] = "";
  EXPECT_THAT(environment(), Contains(Pair("LD_LIBRARY_PATH", "/ranks")));
  EXPECT_THAT(environment(), Not(Contains(Key("LD_PRELOAD"))));
}

TEST_F(OnSlurm, HasTheRanksPlaceAndWhereRankZeroListens) {
  own_.rank = 3;
  own_.local_rank = own_.node_rank = 1;
  own_.world_size = 4;
  own_.local_world_size = 2;
  EXPECT_THAT(environment(), Contains(Pair("MUSTER_NODES", "2")));
  EXPECT_THAT(environment(), Not(Contains(Key("MASTER_ADDR"))));
  agent_.inherited["SLURM_JOB_NODELIST"] = "n[1-3]";
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

TEST_F(OnSlurm, ALauncherOfItsOwnIsToldOfNoRankOfTorchrunsNorOfSruns) {
  agent_.launch.own_launcher = true;
  agent_.inherited["SLURM_NTASKS"] = "2";
  agent_.inherited["SLURM_PROCID"] = "1";
  agent_.inherited["SLURM_JOB_ID"] = "12";
  own_.rank = own_.node_rank = 1;
  own_.world_size = 2;
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

TEST_F(OnSlurm, AScriptFindsWhatSlurmTellsItAndIsNoRank) {
  agent_.launch.batch.emplace();
  agent_.inherited.insert({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_NODELIST", "n[1-2]"}});
  meeting_point_ = rank::Endpoint{"n1", 4000};
  const auto all = environment();
  EXPECT_THAT(all, Contains(Pair("SLURM_NTASKS", "8")));
  EXPECT_THAT(all, Contains(Pair("MUSTER_BATCH", "1")));
  EXPECT_THAT(all, Contains(Pair("MUSTER_NODELIST", "n1,n2")));
  for (const auto* name : {"RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "PET_NNODES", "PET_NODE_RANK"}) {
    EXPECT_THAT(all, Not(Contains(Key(name))));
  }
  EXPECT_EQ(variable_of(agent_, "RANK"), "0") << "to its agent it is the only rank";
  EXPECT_EQ(variable_of(agent_, "WORLD_SIZE"), "1");
}

TEST_F(OnSlurm, TheJobsOwnVariablesStandAboveAllOthers) {
  agent_.launch.env = {{"HOME", "/job"}, {"RANK", "5"}, {"LD_PRELOAD", "/job.so"}};
  agent_.inherited["MUSTER_RANK_LD_PRELOAD"] = "/ranks.so";
  const auto all = environment();
  for (const auto& [name, value] : agent_.launch.env) EXPECT_EQ(all.at(name), value) << name;
  EXPECT_EQ(variable_of(agent_, "HOME"), "/job");
  EXPECT_EQ(variable_of(agent_, "MUSTER_OTHER"), "2");
  EXPECT_EQ(variable_of(agent_, "NOTHING"), std::nullopt);
}

class OnMusterdsMachine : public testing::Test {
 protected:
  OnMusterdsMachine() {
    agent_.launch.local.emplace();
    agent_.inherited = {{"HOME", "/home/musterd"}, {"SLURM_JOB_ID", "1"}};
    agent_.node = "here";
  }
  protocol::LocalLaunch& local() { return *agent_.launch.local; }
  std::optional<rank::Endpoint> meeting_point() { return rank::Endpoint{local().master_addr, local().master_port}; }
  spec::Environment environment(std::size_t rank) {
    return rank_environment(agent_, ranks_beside(agent_, {}).at(rank), meeting_point());
  }

  AgentPlace agent_;
};

TEST_F(OnMusterdsMachine, PutsTheRanksPlaceAndItsDevicesAboveTheBase) {
  local().ranks = 2;
  local().devices = {"1,2", "3,4"};
  local().master_port = 12345;
  local().base_env = {{"HOME", "/root"}, {"RANK", "9"}};
  local().allowed_devices = "1,2,3,4";
  const auto env = environment(1);
  for (const auto& [name, value] : spec::Environment{{"HOME", "/root"},
                                                     {"RANK", "1"},
                                                     {"LOCAL_RANK", "1"},
                                                     {"NODE_RANK", "0"},
                                                     {"WORLD_SIZE", "2"},
                                                     {"LOCAL_WORLD_SIZE", "2"},
                                                     {"MASTER_ADDR", "127.0.0.1"},
                                                     {"MASTER_PORT", "12345"},
                                                     {"MUSTER_NODES", "1"},
                                                     {"MUSTER_NODELIST", "here"},
                                                     {"MUSTER_GPUS", "1,2,3,4"},
                                                     {"CUDA_VISIBLE_DEVICES", "3,4"}}) {
    EXPECT_THAT(env, Contains(Pair(name, value)));
  }
}

TEST_F(OnMusterdsMachine, AScriptFindsWhatSlurmWouldTellItAndSrun) {
  agent_.launch.batch = protocol::BatchTasks{.of_node = 2, .cpus_of_task = 3};
  agent_.launch.env = {{"MUSTER_JOB_ID", "7"}, {"MUSTER_ATTEMPT_FOLDER", "/attempt"}};
  agent_.launch.job_name = "tune";
  agent_.launch.argv = {"sh", "-c", "line", "run.sh", "#!/bin/bash -l\necho\n"};
  local().ranks = 1;
  local().devices = {"4,5"};
  local().base_env = {{"PATH", "/bin"}};
  const auto env = environment(0);
  for (const auto& [name, value] :
       spec::Environment{{"SLURM_JOB_ID", "7"},
                         {"SLURM_JOB_NAME", "tune"},
                         {"SLURM_JOB_NODELIST", "here"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_CPUS_PER_TASK", "3"},
                         {"SLURM_CPUS_ON_NODE", "6"},
                         {"SLURM_GPUS_ON_NODE", "2"},
                         {"CUDA_VISIBLE_DEVICES", "4,5"},
                         {"PATH", "/attempt/slurm-bin:/bin"},
                         {"BASH_FUNC_srun%%", "() { '/attempt/slurm-bin/srun' \"$@\"\n}"}}) {
    EXPECT_THAT(env, Contains(Pair(name, value)));
  }
  for (const auto* name : {"RANK", "MASTER_ADDR", "PET_NNODES"}) EXPECT_THAT(env, Not(Contains(Key(name))));
}

TEST_F(OnMusterdsMachine, TheJobsOwnSettingsWin) {
  local().devices = {"0"};
  local().base_env = {{"HOME", "/root"}, {"MUSTER_JOB_ID", "outer"}};
  agent_.launch.env = {{"RANK", "5"}, {"CUDA_VISIBLE_DEVICES", "7"}, {"MUSTER_JOB_ID", "3"}, {"HOME", ""}};
  const auto env = environment(0);
  for (const auto& [name, value] : agent_.launch.env) EXPECT_EQ(env.at(name), value) << name;
}

TEST_F(OnMusterdsMachine, ALauncherOfItsOwnIsToldOfNoRank) {
  agent_.launch.own_launcher = true;
  local().master_port = 12345;
  local().base_env = {{"RANK", "9"}, {"HOME", "/root"}};
  agent_.launch.env = {{"MUSTER_JOB_ID", "3"}};
  const auto env = environment(0);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"}) {
    EXPECT_THAT(env, Not(Contains(Key(name)))) << name;
  }
  for (const auto& [name, value] : spec::Environment{{"HOME", "/root"},
                                                     {"MASTER_PORT", "12345"},
                                                     {"PET_MASTER_PORT", "12345"},
                                                     {"PET_NNODES", "1"},
                                                     {"NODE_RANK", "0"}}) {
    EXPECT_THAT(env, Contains(Pair(name, value)));
  }
  EXPECT_THAT(env, Contains(Key("TORCHELASTIC_ERROR_FILE"))) << "torchrun writes the root cause there";
  EXPECT_THAT(agents_environment(agent_, ranks_beside(agent_, {}).at(0), meeting_point()), Contains(Pair("RANK", "0")))
      << "the agent says which rank it is";
}

TEST_F(OnMusterdsMachine, WithoutGpusARankSeesWhatTheAdministratorAllows) {
  local().ranks = 2;
  EXPECT_THAT(environment(0), Not(Contains(Key("CUDA_VISIBLE_DEVICES"))));
  local().allowed_devices = "1,2";
  EXPECT_THAT(environment(1), Contains(Pair("CUDA_VISIBLE_DEVICES", "1,2")));
}

TEST_F(OnMusterdsMachine, NothingOfTheAgentsOwnEnvironmentCounts) {
  local().ranks = 2;
  EXPECT_THAT(environment(1), Not(Contains(Key("HOME"))));
  EXPECT_THAT(environment(1), Not(Contains(Key("MUSTER_SLURM_JOB"))));
  agent_.launch.env = {{"RANK", "5"}, {"MUSTER_ATTEMPT", "3"}};
  EXPECT_EQ(variable_of(agent_, "RANK"), std::nullopt) << "it has all ranks, whatever the job says";
  EXPECT_EQ(variable_of(agent_, "MUSTER_ATTEMPT"), "3");
}

}  // namespace
}  // namespace agent::program
