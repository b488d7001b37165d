// Goal: ranks of an old attempt are told to stop and may write nothing, and what they have started is gone before the
// next attempt.
// Method: a real worker is started by hand with the environment of attempt 1 while attempt 2 runs, as if a node had
// come back from the dead. A program kills its agent, and leaves a process that ignores every polite signal.
#include <signal.h>

#include "tests/system/world.h"

namespace test {
namespace {

std::map<std::string, std::string> environment_of(int pid) {
  std::map<std::string, std::string> result;
  const auto block = read_file("/proc/" + std::to_string(pid) + "/environ");
  for (std::size_t at = 0; at < block.size();) {
    const std::string entry = block.c_str() + at;
    at += entry.size() + 1;
    const auto equals = entry.find('=');
    if (equals != std::string::npos) result[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return result;
}

TEST(Fencing, ARankOfAnOldAttemptIsStoppedAndWritesNothing) {
  World world;
  world.start_daemon();
  const auto job = world.submit(training_job({.steps = 2000, .every_steps = 5, .step_delay_ms = 50}));
  const auto first = world.until_step(job, 7);
  auto ghost_environment = environment_of(first.at("ranks")[0].at("pid"));
  signal_rank(first, 1, SIGKILL);
  world.until(job, [](const Json& view) {
    return view.at("attempts").size() == 2 && view.at("attempts")[1].at("state") == "running";
  });

  const auto run_file = ghost_environment.at("MUSTER_RUN_FILE");
  const auto told = run({World::program("muster-worker"), "--run-file", run_file}, ghost_environment, 60s);
  EXPECT_EQ(told.exit, 94) << told.err;

  // Without a controller to tell it, the fence in the checkpoint folder still keeps a lone ghost from publishing.
  ghost_environment.erase("MUSTER_CONTROLLER");
  ghost_environment["WORLD_SIZE"] = ghost_environment["LOCAL_WORLD_SIZE"] = "1";
  ghost_environment["MUSTER_METRICS_FILE"] = (world.folder() / "ghost.jsonl").string();
  const auto fenced = run({World::program("muster-worker"), "--run-file", run_file}, ghost_environment, 60s);
  EXPECT_EQ(fenced.exit, 94) << fenced.err;
  EXPECT_NE(fenced.err.find("attempt 1"), std::string::npos) << fenced.err;
  for (const auto& entry : std::filesystem::directory_iterator(world.checkpoints(job))) {
    const auto manifest = read_file(entry.path() / "manifest.json");
    if (manifest.empty()) continue;
    EXPECT_EQ(Json::parse(manifest).at("world_size"), 2) << "a lone ghost's: " << entry.path();
  }
  const auto now = world.show(job);
  EXPECT_EQ(now.at("state"), "running");
  EXPECT_EQ(now.at("attempts").size(), 2U);
}

// The process stands in a session of its own, as torchrun's workers and data loaders do. It has a lock as long as it
// lives.
TEST(Fencing, WhatAKilledSupervisorLeavesIsGoneBeforeTheNextAttempt) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job(R"sh(flock --nonblock lock true || touch beside
[ $MUSTER_ATTEMPT = 2 ] && exit 0
setsid flock lock sh -c 'trap "" TERM HUP; touch ready; while :; do sleep 0.05; done' &
while [ ! -e ready ]; do sleep 0.01; done
flock --nonblock lock true || touch locked
kill -KILL $PPID; sleep 600)sh"));
  const auto done = world.until_state(job, "succeeded");
  EXPECT_EQ(done.at("attempts").size(), 2U) << done.at("attempts");
  EXPECT_EQ(done.at("attempts")[0].at("cause"), "controller_lost") << done.at("attempts");
  EXPECT_TRUE(std::filesystem::exists(world.folder() / "locked")) << "the lock tells nothing";
  EXPECT_FALSE(std::filesystem::exists(world.folder() / "beside")) << "two attempts ran beside each other";
}

}  // namespace
}  // namespace test
