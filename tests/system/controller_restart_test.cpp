// Goal: kill -9 of musterd in the middle of training costs nothing: ranks never stop, metrics have no gap, nothing is
// started twice.
// Method: real processes; the daemon is killed by SIGKILL and started again on the same folder and ports.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "tests/system/world.h"

namespace test {
namespace {

std::vector<std::pair<int, std::string>> pids_and_starts(const Json& job) {
  std::vector<std::pair<int, std::string>> result;
  for (const auto& rank : job.at("ranks")) {
    const int pid = rank.at("pid");
    const auto stat = read_file("/proc/" + std::to_string(pid) + "/stat");
    // Field 22, counted behind the parenthesised name: the start time, which tells a reused id from the same process.
    std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)));
    std::string field;
    for (int i = 3; i <= 22; ++i) fields >> field;
    result.emplace_back(pid, field);
  }
  return result;
}

TEST(ControllerRestart, RanksGoOnTrainingAndMetricsHaveNoGap) {
  World world;
  world.start_daemon();
  const auto job = world.submit(training_job({.steps = 400, .every_steps = 50, .step_delay_ms = 50}));
  const auto running = world.until_step(job, 20);
  const auto before = pids_and_starts(running);
  world.kill_daemon();
  // Five seconds without a controller: twice as long as a rank may be silent.
  const auto log = std::filesystem::path(running.at("log_folder").get<std::string>()) / "rank-0.log";
  const auto size = std::filesystem::file_size(log);
  ASSERT_FALSE(eventually([&] { return ::kill(before[0].first, 0) != 0 || ::kill(before[1].first, 0) != 0; }, 5s))
      << "a rank ended while the controller was away";
  EXPECT_GT(std::filesystem::file_size(log), size) << "training stood still";
  world.start_daemon();
  EXPECT_EQ(pids_and_starts(world.show(job)), before);
  world.until_step(job, 160);
  const auto after = world.until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 1U);
  expect_every_step(world.metrics(job), 400);
}

// The ranks end by themselves, and nobody is there to hear their last steps.
TEST(ControllerRestart, AJobThatFinishesMeanwhileIsCompleteAfterwards) {
  World world;
  world.start_daemon();
  const auto job = world.submit(training_job({.steps = 60, .every_steps = 10, .step_delay_ms = 50}));
  const auto running = world.until_step(job, 15);
  world.kill_daemon();
  ASSERT_TRUE(eventually(
      [&] {
        return std::ranges::all_of(running.at("ranks"),
                                   [](const Json& rank) { return ::kill(rank.at("pid"), 0) != 0; });
      },
      120s));
  world.start_daemon();
  const auto after = world.until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 1U);
  EXPECT_EQ(after.at("ranks")[0].at("step"), 60);
  EXPECT_EQ(after.at("last_checkpoint_step"), 60);
  expect_every_step(world.metrics(job), 60);
  world.kill_daemon();
  world.start_daemon();
  const auto restarted = world.show(job);
  ASSERT_EQ(restarted.at("ranks").size(), 2U);
  for (const auto& rank : restarted.at("ranks")) EXPECT_EQ(rank.at("step"), 60) << "what is stored is shown";
}

TEST(ControllerRestart, AnEndThatHappenedMeanwhileIsLearnedAfterwards) {
  World world;
  world.start_daemon();
  const auto flag = (world.folder() / "go").string();
  const auto job = world.submit(shell_job("while ! [ -e " + flag + " ]; do sleep 0.05; done; exit 93"));
  const auto running = world.until_state(job, "running");
  world.kill_daemon();
  write_file(flag, "");
  const int pid = running.at("ranks")[0].at("pid");
  ASSERT_TRUE(eventually([&] { return ::kill(pid, 0) != 0; }, 10s));
  world.start_daemon();
  const auto after = world.until_state(job, "failed");
  ASSERT_EQ(after.at("attempts").size(), 1U) << "exit code 93 never comes back";
  EXPECT_EQ(after.at("attempts")[0].at("exit_code"), 93);
}

TEST(ControllerRestart, ARankThatDiedMeanwhileBringsTheNextAttempt) {
  World world;
  world.start_daemon();
  const auto job = world.submit(training_job({.steps = 400, .every_steps = 10, .step_delay_ms = 50}));
  const auto running = world.until_step(job, 15);
  world.kill_daemon();
  const auto saved = std::filesystem::path(running.at("checkpoint_folder").get<std::string>()) / "step-00000030";
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(saved); }, 120s));
  signal_rank(running, 1, SIGKILL);
  world.start_daemon();
  const auto after = world.until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U);
  EXPECT_EQ(after.at("attempts")[0].at("cause"), "failed");
  const int resumed = after.at("attempts")[1].at("resumed_from_step");
  EXPECT_GE(resumed, 20);
  // The steps that nobody will do again are those of the first attempt.
  std::set<int> first;
  for (const auto& row : world.metrics(job)) {
    if (row.at("attempt") == 1) first.insert(row.at("step").get<int>());
  }
  for (int step = 1; step <= resumed; ++step) EXPECT_TRUE(first.contains(step)) << step;
}

// The store forgets a job; what it left on disk, its attempt's records and checkpoints, is no other job's.
TEST(ControllerRestart, ARestoredBackupGivesNoNewJobTheNumberOfAForgottenOne) {
  World world;
  const auto file = world.data() / "muster.db", backup = world.folder() / "backup.db";
  world.start_daemon();
  world.until_state(world.submit(shell_job("true")), "succeeded");
  world.stop_daemon();
  std::filesystem::copy_file(file, backup);
  world.start_daemon();
  const auto forgotten = world.submit(shell_job("touch forgotten"));
  world.until_state(forgotten, "succeeded");
  world.stop_daemon();
  std::filesystem::copy_file(backup, file, std::filesystem::copy_options::overwrite_existing);
  for (const char* more : {"-wal", "-shm"}) std::filesystem::remove(file.string() + more);
  world.start_daemon();
  EXPECT_EQ(world.cli({"show", forgotten}).exit, 3);
  const auto job = world.submit(shell_job("touch new"));
  EXPECT_EQ(std::stoi(job), std::stoi(forgotten) + 1);
  world.until_state(job, "succeeded");
  EXPECT_TRUE(std::filesystem::exists(world.folder() / "new")) << "it ran itself";
}

TEST(ControllerRestart, APoliteStopLeavesTheJobRunning) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job("while true; do sleep 0.1; done"));
  const auto before = pids_and_starts(world.until_state(job, "running"));
  world.stop_daemon();
  EXPECT_EQ(::kill(before[0].first, 0), 0);
  world.start_daemon();
  EXPECT_EQ(pids_and_starts(world.show(job)), before);
  EXPECT_EQ(world.cli({"cancel", job}).exit, 0);
  world.until_state(job, "cancelled");
  EXPECT_NE(::kill(before[0].first, 0), 0);
}

}  // namespace
}  // namespace test
