#include "runtime/local/rank_environment.h"

#include <gtest/gtest.h>

namespace runtime::local {

TEST(VisibleDevices, AreARanksSliceOfAll) {
  EXPECT_EQ(visible_devices("", 1, 0), "0");
  EXPECT_EQ(visible_devices("", 2, 1), "2,3");
  EXPECT_EQ(visible_devices("4,GPU-5,6,7", 2, 0), "4,GPU-5");
  EXPECT_EQ(visible_devices("4,GPU-5,6,7", 2, 1), "6,7");
  EXPECT_EQ(visible_devices("4,5", 1, 2), std::nullopt);
}

TEST(RankEnvironment, AddsTheRanksPlaceAndItsDevices) {
  LaunchFile launch;
  launch.ranks = 2;
  launch.gpus_per_rank = 2;
  launch.master_port = 12345;
  const auto env = rank_environment(launch, {{"HOME", "/root"}, {"RANK", "9"}, {"CUDA_VISIBLE_DEVICES", "1,2,3,4"}}, 1);
  const Environment expected{{"HOME", "/root"},
                             {"RANK", "1"},
                             {"LOCAL_RANK", "1"},
                             {"NODE_RANK", "0"},
                             {"WORLD_SIZE", "2"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "12345"},
                             {"CUDA_VISIBLE_DEVICES", "3,4"}};
  EXPECT_EQ(env, expected);
}

TEST(RankEnvironment, TheJobsOwnSettingsWin) {
  LaunchFile launch;
  launch.gpus_per_rank = 1;
  launch.env = {{"RANK", "5"}, {"CUDA_VISIBLE_DEVICES", "7"}, {"MUSTER_JOB_ID", "3"}, {"HOME", ""}};
  const auto env = rank_environment(launch, {{"HOME", "/root"}, {"MUSTER_JOB_ID", "outer"}}, 0);
  for (const auto& [name, value] : launch.env) EXPECT_EQ(env.at(name), value) << name;
}

TEST(RankEnvironment, TheControllersOwnSettingsAndSecretsStayWithIt) {
  EXPECT_FALSE(rank_environment({}, {{"MUSTER_TOKEN", "secret"}}, 0).contains("MUSTER_TOKEN"));
}

TEST(RankEnvironment, WithoutGpusDevicesAreLeftAsTheyAre) {
  EXPECT_FALSE(rank_environment({}, {}, 0).contains("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(rank_environment({}, {{"CUDA_VISIBLE_DEVICES", "1,2"}}, 1).at("CUDA_VISIBLE_DEVICES"), "1,2");
}

}  // namespace runtime::local
