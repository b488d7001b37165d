#include "agent/supervisor/rank_environment.h"

#include <gmock/gmock.h>

namespace agent::supervisor {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

TEST(RankEnvironment, PutsTheRanksPlaceAndItsDevicesAboveTheBase) {
  protocol::LocalLaunch launch;
  launch.ranks = 2;
  launch.gpus_per_rank = 2;
  launch.master_port = 12345;
  launch.base_env = {{"HOME", "/root"}, {"RANK", "9"}};
  launch.allowed_devices = "1,2,3,4";
  const auto env = rank_environment(launch, 1, "here");
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

TEST(RankEnvironment, TheJobsOwnSettingsWin) {
  protocol::LocalLaunch launch;
  launch.gpus_per_rank = 1;
  launch.base_env = {{"HOME", "/root"}, {"MUSTER_JOB_ID", "outer"}};
  launch.env = {{"RANK", "5"}, {"CUDA_VISIBLE_DEVICES", "7"}, {"MUSTER_JOB_ID", "3"}, {"HOME", ""}};
  const auto env = rank_environment(launch, 0, "here");
  for (const auto& [name, value] : launch.env) EXPECT_EQ(env.at(name), value) << name;
}

TEST(RankEnvironment, ALauncherOfItsOwnIsToldOfNoRank) {
  protocol::LocalLaunch launch;
  launch.own_launcher = true;
  launch.master_port = 12345;
  launch.base_env = {{"RANK", "9"}, {"HOME", "/root"}};
  launch.env = {{"MUSTER_JOB_ID", "3"}};
  const auto env = rank_environment(launch, 0, "here");
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
  EXPECT_THAT(agents_environment(launch, 0, "here"), Contains(Pair("RANK", "0"))) << "the agent says which rank it is";
}

TEST(RankEnvironment, WithoutGpusARankSeesWhatTheAdministratorAllows) {
  protocol::LocalLaunch launch;
  EXPECT_THAT(rank_environment(launch, 0, "here"), Not(Contains(Key("CUDA_VISIBLE_DEVICES"))));
  launch.allowed_devices = "1,2";
  EXPECT_THAT(rank_environment(launch, 1, "here"), Contains(Pair("CUDA_VISIBLE_DEVICES", "1,2")));
}

}  // namespace
}  // namespace agent::supervisor
