#include "agent/protocol/launch.h"

#include <gtest/gtest.h>

#include <stdexcept>

// Goal: a supervisor starts what musterd meant.
namespace agent::protocol {
namespace {

TEST(LocalLaunch, ComesBackAsItWas) {
  LocalLaunch launch{.job = 3,
                     .attempt = 2,
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
                     .master_port = 65535,
                     .open_files = 1024,
                     .report = {"ckpt/step-*", {{"loss", "loss ([\\d.]+)"}}, "runs"}};
  EXPECT_EQ(parse_local_launch(to_text(launch)), launch);
  launch.allowed_devices.reset();
  EXPECT_EQ(parse_local_launch(to_text(launch)), launch);
}

TEST(LocalLaunch, BytesThatAreNotUtf8AreRefused) {
  LocalLaunch launch;
  launch.argv = {"\xff"};
  EXPECT_THROW(to_text(launch), std::invalid_argument);
}

TEST(LocalLaunch, GarbageIsAnError) {
  EXPECT_THROW(parse_local_launch("{\"job\": 1}"), std::runtime_error);
  EXPECT_THROW(parse_local_launch("{"), std::runtime_error);
}

}  // namespace
}  // namespace agent::protocol
