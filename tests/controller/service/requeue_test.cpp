// Goal: whatever ends an attempt, the job comes back, ends, or stays away as its policy says.
// Method: the real controller without threads; store in memory and in SQLite, ranks and clock of our own.
#include <sys/mount.h>

#include <fstream>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

class Requeue : public ::testing::TestWithParam<StoreKind> {
 protected:
  Bench bench{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Stores, Requeue, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Requeue, AJobWhoseRanksAllExitWithZeroSucceeds) {
  const auto id = bench.submit(recipe_request("a"));
  EXPECT_EQ(bench.state(id), "running");
  EXPECT_EQ(bench.attempt(id, 1).state(), "starting");
  bench.heartbeats({id, 1}, 2, 1);
  EXPECT_EQ(bench.attempt(id, 1).state(), "running");
  bench.executor().end_all({id, 1}, {0, 0});
  bench.tick();
  EXPECT_EQ(bench.state(id), "succeeded");
  EXPECT_EQ(bench.attempt(id, 1).cause(), "completed");
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Requeue, AKilledRankDrainsTheGangAndStartsTheNextAttemptAfterTheBackoff) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 5);
  bench.executor().end({id, 1}, 1, {0, 9});
  bench.tick();
  EXPECT_EQ(bench.attempt(id, 1).state(), "draining");
  ASSERT_EQ(bench.machine->stop_count({id, 1}), 1U);
  EXPECT_LE(bench.machine->get({id, 1}).stops[0].grace, 2s) << "a gang without a rank can't save";
  EXPECT_EQ(bench.heartbeat({id, 1}, 0, 5), muster::v1::DIRECTIVE_STOP);
  bench.executor().end({id, 1}, 0, {0, 15});
  bench.tick();
  EXPECT_EQ(bench.state(id), "waiting");
  EXPECT_EQ(bench.attempt(id, 1).cause(), "failed");
  EXPECT_EQ(bench.attempt(id, 1).rank(), 1U);
  EXPECT_EQ(bench.attempt(id, 1).signal(), 9);
  bench.pass(900ms);
  EXPECT_FALSE(bench.machine->has({id, 2}));
  bench.pass(200ms);
  EXPECT_TRUE(bench.machine->has({id, 2}));
  EXPECT_EQ(bench.state(id), "running");
}

TEST_P(Requeue, ASilentRankIsKnownWithinThreeSeconds) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 5);
  bench.executor().freeze({id, 1}, 1);
  bench.pass(2900ms, [&] { bench.heartbeat({id, 1}, 0, 5); });
  EXPECT_EQ(bench.attempt(id, 1).state(), "draining");
  EXPECT_EQ(bench.attempt(id, 1).cause(), "rank_silent");
  EXPECT_EQ(bench.attempt(id, 1).rank(), 1U);
}

TEST_P(Requeue, ACancelledJobSavesLeavesAndNeverComesBack) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 5);
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok()) << "twice is fine";
  EXPECT_EQ(bench.heartbeat({id, 1}, 0, 6), muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  bench.tick();
  ASSERT_GE(bench.machine->stop_count({id, 1}), 1U);
  EXPECT_EQ(bench.machine->get({id, 1}).stops[0].grace, 30s);
  bench.executor().end_all({id, 1}, {99, 0});
  bench.pass(10s);
  EXPECT_EQ(bench.state(id), "cancelled");
  EXPECT_FALSE(bench.machine->has({id, 2}));
  const auto again = bench.controller().cancel(id, "ada");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.refusal().kind, common::Refusal::Kind::kWrongState);
  EXPECT_FALSE(bench.controller().requeue(id, "ada").ok());
}

TEST_P(Requeue, AManualRequeueSavesAndStartsAgainAtOnce) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 5);
  ASSERT_TRUE(bench.controller().requeue(id, "ada").ok());
  EXPECT_EQ(bench.heartbeat({id, 1}, 0, 6), muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  bench.tick();
  bench.executor().end_all({id, 1}, {99, 0});
  bench.tick();
  EXPECT_TRUE(bench.machine->has({id, 2}));
  EXPECT_EQ(bench.attempt(id, 1).cause(), "requeued");
}

TEST_P(Requeue, AWaitingJobRequeuedByHandStartsAtOnceAndOnlyOnce) {
  const auto id = bench.submit(recipe_request("a", 1));
  bench.executor().end({id, 1}, 0, {1, 0});
  bench.tick();
  ASSERT_EQ(bench.state(id), "waiting");
  ASSERT_TRUE(bench.controller().requeue(id, "ada").ok());
  bench.tick();
  EXPECT_TRUE(bench.machine->has({id, 2}));
  bench.heartbeat({id, 2}, 0, 1);
  bench.pass(2s, [&] { bench.heartbeat({id, 2}, 0, 1); });  // the first StartAttempt(2) comes due meanwhile
  EXPECT_EQ(bench.machine->starts[(core::AttemptKey{id, 2})], 1);
  EXPECT_FALSE(bench.machine->has({id, 3}));
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Requeue, AJobCancelledWhileItWaitsIsNeverLaunchedAgain) {
  const auto id = bench.submit(recipe_request("a", 1));
  bench.executor().end({id, 1}, 0, {1, 0});
  bench.tick();
  ASSERT_EQ(bench.state(id), "waiting");
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  bench.pass(3s);
  EXPECT_EQ(bench.state(id), "cancelled");
  EXPECT_FALSE(bench.machine->has({id, 2})) << "not even to be stopped again";
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Requeue, AMachinesClockThatIsSetDelaysNothing) {
  const auto first = bench.submit(command_request("a"));
  bench.clock.set_wall(-24h);
  const auto second = bench.submit(command_request("b"));
  EXPECT_EQ(bench.state(second), "running") << "set back before it was submitted";
  bench.executor().end({first, 1}, 0, {1, 0});
  bench.tick();
  EXPECT_EQ(bench.state(first), "waiting");
  bench.clock.set_wall(-24h);
  bench.pass(1100ms);
  EXPECT_EQ(bench.state(first), "running") << "set back during its backoff of one second";
  bench.executor().end({second, 1}, 0, {1, 0});
  bench.tick();
  bench.clock.set_wall(48h);
  bench.pass(900ms);
  EXPECT_EQ(bench.state(second), "waiting") << "set forward: the backoff is kept all the same";
}

TEST_P(Requeue, AClockSetBackWhileTheControllerWasAwayCostsTheLongestBackoffAtMost) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_requeue()->set_backoff_max_ms(5000);
  const auto id = bench.submit(request);
  bench.executor().end({id, 1}, 0, {1, 0});
  bench.tick();
  bench.clock.set_wall(-24h);
  bench.restart();
  bench.pass(5100ms);
  EXPECT_EQ(bench.state(id), "running");
}

TEST_P(Requeue, ExitCode93NeverComesBack) {
  const auto id = bench.submit(recipe_request("a", 1));
  bench.executor().end({id, 1}, 0, {93, 0});
  bench.pass(5s);
  EXPECT_EQ(bench.state(id), "failed");
  EXPECT_FALSE(bench.machine->has({id, 2}));
}

TEST_P(Requeue, BudgetsAndBackoffBoundTheAttempts) {
  const auto id = bench.submit(recipe_request("a", 1));
  for (core::AttemptNumber n = 1; n <= 4; ++n) {
    ASSERT_TRUE(bench.machine->has({id, n})) << n;
    bench.executor().end({id, n}, 0, {1, 0});
    bench.pass(5s);
  }
  EXPECT_EQ(bench.state(id), "failed");
  EXPECT_FALSE(bench.machine->has({id, 5}));
  ASSERT_TRUE(bench.controller().requeue(id, "ada").ok()) << "a person refills the budgets";
  bench.tick();
  EXPECT_TRUE(bench.machine->has({id, 5}));
}

TEST_P(Requeue, TheTimeLimitEndsAnAttemptWithASave) {
  auto request = recipe_request("a", 1);
  request.mutable_spec()->mutable_resources()->set_time_limit_ms(5000);
  const auto id = bench.submit(request);
  bench.pass(5200ms, [&] { bench.heartbeat({id, 1}, 0, 5); });
  EXPECT_EQ(bench.attempt(id, 1).cause(), "timed_out");
  EXPECT_EQ(bench.heartbeat({id, 1}, 0, 5), muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
}

TEST_P(Requeue, AChangedTimeLimitCountsForTheAttemptThatRuns) {
  const auto id = bench.submit(command_request("a"));
  bench.pass(5s);
  ASSERT_TRUE(bench.controller().set_time_limit(id, 20s, "ada").ok());
  bench.pass(5s);
  ASSERT_TRUE(bench.controller().set_time_limit(id, 30s, "ada").ok());
  bench.restart();
  bench.pass(19s);
  EXPECT_EQ(bench.state(id), "running");
  bench.pass(2s);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "timed_out");
  EXPECT_EQ(bench.attempt(id, 1).reason(), "time limit of 30 s reached");
}

TEST_P(Requeue, AProgramThatAlwaysAsksToBeStartedAgainIsSlowedDown) {
  const auto id = bench.submit(command_request("a"));
  for (int i = 0; i < 600; ++i) {
    const auto job = bench.job(id);
    if (job.state() == "running") {
      bench.executor().end({id, static_cast<core::AttemptNumber>(job.attempts_size())}, 0, {99, 0});
    }
    bench.pass(100ms);
  }
  EXPECT_EQ(bench.job(id).attempts_size(), 6) << "after 1, 2, 4, 8, 16 and 32 s, in a minute";
}

TEST_P(Requeue, ALaunchThatCannotWorkEndsTheJobWithTheReason) {
  bench.machine->launch_failure = "no such program: python4";
  bench.machine->launch_failure_retryable = false;
  const auto id = bench.submit(command_request("a"));
  EXPECT_EQ(bench.state(id), "failed");
  EXPECT_EQ(bench.job(id).reason(), "could not be started, and trying again cannot help: no such program: python4");
  EXPECT_TRUE(bench.controller().why(id).value().action().starts_with("Correct in the job file what the reason names"));
}

TEST_P(Requeue, ALaunchThatMayWorkLaterIsTriedAgain) {
  bench.machine->launch_failure = "too many processes";
  const auto id = bench.submit(command_request("a"));
  EXPECT_EQ(bench.state(id), "waiting");
  bench.machine->launch_failure.clear();
  bench.pass(1500ms);
  EXPECT_EQ(bench.state(id), "running");
}

/// A file system of 64 KiB, unmounted at the end.
class SmallDisk {
 public:
  SmallDisk() : mounted_(::mount("tmpfs", path().c_str(), "tmpfs", 0, "size=64k") == 0) {}
  ~SmallDisk() {
    if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return folder_.path(); }
  void fill() const {
    std::ofstream file(path() / "filler", std::ios::binary);
    while (file.write(std::string(1 << 12, 'x').data(), 1 << 12).flush()) {
    }
  }
  void make_room() const { std::filesystem::remove(path() / "filler"); }

 private:
  TempFolder folder_;
  bool mounted_;
};

TEST_P(Requeue, AFullCheckpointDiskIsWaitedForAtNoCost) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  disk.fill();
  auto request = recipe_request("a", 1);
  request.mutable_spec()->mutable_checkpoint()->set_folder(disk.path());
  const auto id = bench.submit(request);
  for (core::AttemptNumber number = 1; number <= 2; ++number) {
    const std::string before = number == 1 ? "pending" : "waiting";
    bench.pass(10min);
    EXPECT_EQ(bench.state(id), before);
    bench.restart();
    bench.pass(10min);
    EXPECT_EQ(bench.state(id), before);
    EXPECT_EQ(bench.why(id).reason(),
              "Not started yet: cannot write " + (disk.path() / "FENCE").string() + ": No space left on device");
    EXPECT_EQ(bench.why(id).action(), "Make room there: it starts by itself.");
    disk.make_room();
    bench.pass(1100ms);
    EXPECT_EQ(bench.state(id), "running");
    EXPECT_EQ(bench.job(id).attempts_size(), number) << "waiting cost nothing";
    EXPECT_EQ(bench.why(id).reason().find("Not started yet"), std::string::npos);
    disk.fill();
    bench.executor().end({id, number}, 0, {1, 0});
    bench.tick();
  }
}

// Local processes have no queue that would tell it.
TEST_P(Requeue, WhyTellsWhatAnExecutorWithoutAQueueWaitsFor) {
  bench.machine->launch_later = "cannot write launch.json: No space left on device";
  const auto id = bench.submit(command_request("a"));
  EXPECT_EQ(bench.why(id).reason(), "Not started yet: cannot write launch.json: No space left on device");
  EXPECT_EQ(bench.why(id).action(), "It starts by itself.");
  ASSERT_TRUE(bench.controller().hold(id, "ada").ok());
  EXPECT_EQ(bench.why(id).action(), "Release it when it may start: muster release " + std::to_string(id))
      << "a person's hold comes first";
  ASSERT_TRUE(bench.controller().release(id, "ada").ok());
  bench.machine->launch_later.clear();
  bench.pass(1100ms);
  EXPECT_EQ(bench.state(id), "running");
}

TEST_P(Requeue, ACommandRunsWithoutHeartbeatsForHours) {
  const auto id = bench.submit(command_request("a", 2));
  bench.pass(10min);
  EXPECT_EQ(bench.state(id), "running");
  bench.executor().end_all({id, 1}, {0, 0});
  bench.tick();
  EXPECT_EQ(bench.state(id), "succeeded");
}

TEST_P(Requeue, RanksThatIgnoreTheStopAreStoppedAgain) {
  const auto id = bench.submit(command_request("a", 1));
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  bench.pass(39s);
  EXPECT_EQ(bench.machine->stop_count({id, 1}), 1U);
  bench.pass(2s);
  EXPECT_EQ(bench.machine->stop_count({id, 1}), 2U);
}

TEST_P(Requeue, ARanksLastWordsBecomeTheReason) {
  const auto id = bench.submit(recipe_request("a", 1));
  auto beat = Bench::beat({id, 1}, 0, 3);
  beat.set_leaving(true);
  beat.set_exit_code(1);
  beat.set_leaving_reason("cannot write the checkpoint: Read-only file system");
  ASSERT_TRUE(bench.send(beat).ok());
  bench.executor().end({id, 1}, 0, {1, 0});
  bench.tick();
  EXPECT_NE(bench.attempt(id, 1).reason().find("Read-only file system"), std::string::npos);
}

}  // namespace
}  // namespace service::testing
