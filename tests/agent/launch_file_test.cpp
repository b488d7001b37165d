#include "agent/supervisor/launch_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "agent/supervisor/attempt_folder.h"

namespace runtime::local {

class LaunchFiles : public testing::Test {
 protected:
  void SetUp() override {
    auto name = testing::TempDir() + "/launch-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
    folder_ = open_folder(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  std::filesystem::path path_;
  Fd folder_;
};

TEST_F(LaunchFiles, ComeBackAsTheyWere) {
  EXPECT_EQ(read_launch_file(folder_.get()), std::nullopt);
  LaunchFile launch{.key = {3, 2},
                    .job_name = "a \"job\"\n%",
                    .program = "/bin/sh",
                    .argv = {"sh", "", "\x01 \xc3\xa9"},
                    .base_env = {{"PATH", "/bin"}},
                    .env = {{"A", "b=c\n"}},
                    .working_folder = "/work",
                    .log_folder = "/logs",
                    .ranks = 4,
                    .gpus_per_rank = 2,
                    .allowed_devices = "",
                    .master_port = 65535};
  write_launch_file(folder_.get(), launch);
  EXPECT_EQ(read_launch_file(folder_.get()), launch);
  launch.allowed_devices.reset();
  write_launch_file(folder_.get(), launch);
  EXPECT_EQ(read_launch_file(folder_.get()), launch);
}

TEST_F(LaunchFiles, OfAnOlderMusterdAreUnderstood) {
  std::ofstream(path_ / kLaunchFile) << R"({"job": 3, "attempt": 2, "job_name": "a", "program": "/bin/sh",
    "argv": ["sh"], "env": {}, "working_folder": "/", "log_folder": "/", "ranks": 1, "gpus_per_rank": 0,
    "master_addr": "127.0.0.1", "master_port": 7})";
  EXPECT_EQ(read_launch_file(folder_.get())->master_port, 7);
}

TEST_F(LaunchFiles, BytesThatAreNotUtf8AreRefused) {
  LaunchFile launch;
  launch.argv = {"\xff"};
  EXPECT_THROW(write_launch_file(folder_.get(), launch), std::invalid_argument);
  EXPECT_EQ(read_launch_file(folder_.get()), std::nullopt);
}

TEST_F(LaunchFiles, GarbageIsAnError) {
  std::ofstream(path_ / kLaunchFile) << "{\"job\": 1}";
  EXPECT_THROW(read_launch_file(folder_.get()), std::runtime_error);
}

}  // namespace runtime::local
