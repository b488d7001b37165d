// Goal: one writer serves many threads: durable, grouped, idempotent, and honest when the disk is full.
// Method: the real threads; the store in memory, told to fail.
#include <gmock/gmock.h>

#include <latch>
#include <thread>

#include "controller/common/changes.h"
#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::HasSubstr;

// A controller with its threads; time is real where threads wait, and only there.
class Threaded : public ::testing::TestWithParam<StoreKind> {
 protected:
  Threaded() {
    if (GetParam() == StoreKind::kSqlite) sqlite_ = store::open_sqlite_store(folder_.path() / "muster.db");
    start();
  }
  void start() {
    controller_ =
        make_controller(store(), executor_, clock_, {.data_folder = folder_.path(), .people_token = "people"});
    controller_->start({"127.0.0.1:7600", "http://127.0.0.1:7601/"});
  }
  store::Store& store() { return sqlite_ ? *sqlite_ : static_cast<store::Store&>(memory_); }

  // Waits for a condition with a bound; woken by the controller's own changes.
  bool until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    std::uint64_t seen = 0;
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      seen = controller_->wait_change(0, seen, 20ms);
    }
    return true;
  }
  std::string state(core::JobId id) { return controller_->get(id).value().state(); }

  TempFolder folder_;
  store::MemoryStore memory_;
  std::unique_ptr<store::Store> sqlite_;
  common::RealClock clock_;
  FakeExecutor executor_;
  std::unique_ptr<RunningController> controller_;
};
INSTANTIATE_TEST_SUITE_P(Stores, Threaded, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Threaded, TheSameSubmissionFromEightThreadsIsOneJob) {
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    std::latch go(8);
    std::vector<std::thread> threads;
    std::array<core::JobId, 8> ids{};
    std::atomic<int> fresh = 0;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      threads.emplace_back([&, t] {
        go.arrive_and_wait();
        const auto outcome = controller_->submit(command_request("same-" + std::to_string(round)));
        ASSERT_TRUE(outcome.ok()) << outcome.refusal().text;
        ids[t] = outcome.value().job_id();
        if (!outcome.value().already_submitted()) ++fresh;
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(fresh, 1);
    for (const auto id : ids) EXPECT_EQ(id, round + 1);
  }
}

TEST_P(Threaded, ManyJobsFromManyThreadsAllRunOnce) {
  constexpr int kThreads = 8;
  constexpr int kEach = 25;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const auto outcome = controller_->submit(command_request(std::to_string(t) + "/" + std::to_string(i)));
        ASSERT_TRUE(outcome.ok()) << outcome.refusal().text;
        const auto id = outcome.value().job_id();
        ASSERT_TRUE(until([&] { return state(id) == "running"; }));
        executor_.end_all({id, 1}, {0, 0});
      }
    });
  }
  for (auto& thread : threads) thread.join();
  muster::v1::ListRequest finished;
  finished.add_states("succeeded");
  EXPECT_TRUE(until([&] { return controller_->list(finished).total() == kThreads * kEach; }));
  for (const auto& [key, starts] : executor_.machine().starts) EXPECT_EQ(starts, 1) << key.job;
  EXPECT_TRUE(until([&] { return store().pending_actions().empty(); }));
}

TEST_P(Threaded, ASweepOfManyIsHandedToAQueueTogether) {
  executor_.machine().queue = true;
  const auto sweep = controller_->submit_sweep(sweep_request("a", 500, 0));
  ASSERT_TRUE(sweep.ok());
  const core::JobState queued[] = {core::JobState::kQueued};
  EXPECT_TRUE(until([&] { return store().count(queued) == 500; }));
  std::lock_guard lock(executor_.machine().mutex);
  EXPECT_EQ(executor_.machine().starts.size(), 500U);
  EXPECT_LE(executor_.machine().batches.size(), 2U) << "one, or two if the outbox was read in between";
}

TEST_P(Threaded, ASweepWithoutAQueueKeepsItsLimitAndEnds) {
  const auto ids = controller_->submit_sweep(sweep_request("a", 12, 2)).value().job_ids();
  const core::JobState done[] = {core::JobState::kSucceeded};
  const core::JobState active[] = {core::JobState::kRunning, core::JobState::kStopping};
  EXPECT_TRUE(until([&] {
    EXPECT_LE(store().count(active), 2);
    for (const auto id : ids) {
      if (state(id) == "running") executor_.end({id, 1}, 0, {0, 0});
    }
    return store().count(done) == 12;
  }));
  for (const auto& [key, starts] : executor_.machine().starts) EXPECT_EQ(starts, 1);
}

TEST_P(Threaded, HeartbeatsOfManyRanksAreAllDurable) {
  constexpr std::uint32_t kRanks = 16;
  constexpr int kSteps = 50;
  const auto id = controller_->submit(recipe_request("a", kRanks)).value().job_id();
  ASSERT_TRUE(until([&] { return state(id) == "running"; }));
  const auto token = common::rank_token(store().secret(), id, 1);
  EXPECT_TRUE(controller_->is_rank_token({id, 1}, token));
  EXPECT_FALSE(controller_->is_rank_token({id, 2}, token)) << "of another attempt";
  EXPECT_FALSE(controller_->is_rank_token({id, 1}, "people"));
  EXPECT_EQ(controller_->ranks_of(id), kRanks);
  EXPECT_EQ(controller_->ranks_of(id + 1), 0U);
  std::vector<std::thread> ranks;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] {
      // A rank sends again what is not acknowledged.
      int acknowledged = 0;
      const auto send = [&](int newest) {
        auto beat = Bench::beat({id, 1}, r, newest);
        for (int step = acknowledged + 1; step <= newest; ++step) beat.add_metrics()->set_step(step);
        const auto answer = controller_->heartbeat(beat, token);
        ASSERT_TRUE(answer.ok());
        acknowledged += static_cast<int>(answer.value().metrics_accepted());
      };
      for (int step = 1; step <= kSteps; ++step) send(step);
      EXPECT_TRUE(until([&] {
        send(kSteps);
        return acknowledged == kSteps;
      }));
    });
  }
  for (auto& rank : ranks) rank.join();
  const auto rows = store().metrics(id, 1, 0, 0, 1000);
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(kSteps));
  for (const auto& row : rows) EXPECT_EQ(row.ranks, kRanks);
  EXPECT_EQ(controller_->get(id).value().attempts(0).state(), "running");
}

TEST_P(Threaded, AWatcherWakesForItsJobAndGoesHomeAtTheEnd) {
  const auto id = controller_->submit(command_request("a")).value().job_id();
  ASSERT_TRUE(until([&] { return state(id) == "running"; }));
  std::thread watcher([&] {
    std::uint64_t seen = 0;
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (state(id) != "succeeded" && std::chrono::steady_clock::now() < end) {
      seen = controller_->wait_change(id, seen, 10s);
    }
  });
  executor_.end_all({id, 1}, {0, 0});
  const auto began = std::chrono::steady_clock::now();
  watcher.join();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
}

TEST_P(Threaded, StoppingAndStartingAgainKeepsEverything) {
  const auto id = controller_->submit(command_request("a")).value().job_id();
  ASSERT_TRUE(until([&] { return state(id) == "running"; }));
  controller_->stop();
  EXPECT_FALSE(controller_->submit(command_request("late")).ok()) << "refused, not lost";
  controller_.reset();
  executor_.end_silently({id, 1}, 0, {0, 0});
  start();
  EXPECT_TRUE(until([&] { return state(id) == "succeeded"; }));
}

class FullDisk : public ::testing::Test {
 protected:
  void fill() { bench.memory().fail_writes(store::Error(store::Error::Kind::kFull, "the disk is full; make room")); }
  void make_room() { bench.memory().fail_writes(std::nullopt); }
  Bench bench;
};

TEST_F(FullDisk, RefusesPeopleAtOnceWithTheReasonAndHealsByItself) {
  fill();
  const auto refused = bench.controller().submit(command_request("a"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.refusal().kind, common::Refusal::Kind::kUnchanged);
  EXPECT_THAT(refused.refusal().text, HasSubstr("the disk is full; make room"));
  EXPECT_THAT(bench.controller().status().store_problem(), HasSubstr("the disk is full"));
  make_room();
  EXPECT_TRUE(bench.controller().submit(command_request("a")).ok());
  EXPECT_EQ(bench.controller().status().store_problem(), "");
}

TEST_F(FullDisk, LosesNoFactOfAnExecutor) {
  const auto first = bench.submit(command_request("a"));
  const auto second = bench.submit(command_request("b", 2));
  fill();
  bench.executor().end({first, 1}, 0, {0, 0});
  bench.executor().end({second, 1}, 1, {0, 9});
  bench.pass(10s);
  EXPECT_EQ(bench.state(first), "running") << "nothing is believed that is not durable";
  EXPECT_NE(bench.controller().status().store_problem(), "");
  make_room();
  bench.pass(6s);  // the longest backoff
  EXPECT_EQ(bench.state(first), "succeeded");
  EXPECT_EQ(bench.attempt(second, 1).cause(), "failed");
  EXPECT_EQ(bench.controller().status().store_problem(), "");
}

// The scheduler's plan of places is told first, what tasks see there a moment later.
TEST_F(FullDisk, LosesNoPlaceThatIsKnownBetterThanBefore) {
  const auto id = bench.submit(command_request("a", 2));
  fill();
  bench.executor().tell(id, core::AttemptStarted{1, {"n1", "n1"}});
  bench.executor().tell(id, core::AttemptStarted{1, {"n1", "n2"}, true});
  bench.pass(1s);
  make_room();
  bench.pass(6s);
  const auto job = bench.controller().get(id).value();
  EXPECT_EQ(job.ranks(0).node(), "n1");
  EXPECT_EQ(job.ranks(1).node(), "n2");
}

TEST_F(FullDisk, LosesNoSuspicionThatComesAgain) {
  const auto id = bench.submit(command_request("a"));
  fill();
  const core::AttemptSuspected suspected{.attempt = 1, .of = core::Suspicion::kHung};
  bench.executor().tell(id, suspected);
  bench.executor().tell(id, core::SuspicionOver{1, core::Suspicion::kHung, 5s});
  bench.executor().tell(id, suspected);
  bench.pass(1s);
  make_room();
  bench.pass(6s);
  EXPECT_EQ(bench.count_events(id, "attempt_suspected"), 2);
  EXPECT_EQ(bench.count_events(id, "suspicion_over"), 1);
}

TEST_F(FullDisk, KeepsRanksTrainingAndTheirMetricsComeLater) {
  const auto id = bench.submit(recipe_request("a", 1));
  bench.heartbeat({id, 1}, 0, 1);
  fill();
  auto beat = Bench::beat({id, 1}, 0, 2);
  beat.add_metrics()->set_step(2);
  beat.add_checkpoints()->set_step(2);
  auto answer = bench.send(beat).value();
  EXPECT_EQ(answer.directive(), muster::v1::DIRECTIVE_CONTINUE);
  EXPECT_EQ(answer.metrics_accepted(), 0U);
  EXPECT_EQ(answer.checkpoints_accepted(), 0U);
  bench.pass(5min, [&] { bench.heartbeat({id, 1}, 0, 2); });
  EXPECT_EQ(bench.attempt(id, 1).state(), "running");
  make_room();
  answer = bench.send(beat).value();
  EXPECT_EQ(answer.metrics_accepted(), 1U);
  EXPECT_EQ(answer.checkpoints_accepted(), 1U);
  EXPECT_EQ(bench.controller().metrics(id, 0, 0, 0, 10).size(), 1U);
}

// That a launch is under way could not be written down.
TEST_F(FullDisk, BeforeALaunchStartsNothing) {
  const auto id = bench.controller().submit(command_request("a")).value().job_id();
  fill();
  bench.pass(30s);
  EXPECT_FALSE(bench.machine->has({id, 1}));
  make_room();
  bench.pass(6s);
  EXPECT_EQ(bench.state(id), "running");
  EXPECT_EQ(bench.machine->starts[(core::AttemptKey{id, 1})], 1);
}

TEST_F(FullDisk, InTheMiddleOfALaunchStartsNothingTwice) {
  const auto accepted = bench.controller().submit(command_request("a"));
  ASSERT_TRUE(accepted.ok());
  const auto id = accepted.value().job_id();
  bench.machine->on_start = [this](const core::AttemptKey&) { fill(); };
  bench.pass(30s);
  EXPECT_EQ(bench.state(id), "pending");
  EXPECT_EQ(bench.machine->starts[(core::AttemptKey{id, 1})], 1) << "started, but that could not be written";
  make_room();
  bench.pass(6s);
  EXPECT_EQ(bench.state(id), "running");
  EXPECT_EQ(bench.machine->starts[(core::AttemptKey{id, 1})], 1);
  EXPECT_EQ(bench.count_events(id, "attempt_launched"), 1);
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_F(FullDisk, AndACrashOnTopLoseNothingEither) {
  const auto id = bench.submit(command_request("a"));
  fill();
  bench.executor().end({id, 1}, 0, {0, 0});
  bench.pass(1s);
  bench.crash();
  make_room();
  bench.start();
  bench.tick();
  EXPECT_EQ(bench.state(id), "succeeded");
}

TEST(ChangesTest, WaitingEndsWithAChangeOfThatJobAlone) {
  common::Changes changes;
  const auto seen = changes.wait(0, 0, 0ms);
  changes.bump(7);
  EXPECT_GT(changes.wait(7, seen, 10s), seen);
  const auto before = std::chrono::steady_clock::now();
  changes.bump(8);
  const auto after_seven = changes.wait(7, seen, 10s);
  changes.wait(7, after_seven, 30ms);
  EXPECT_GE(std::chrono::steady_clock::now() - before, 30ms) << "job 8's change is not job 7's";
  EXPECT_GT(changes.wait(0, after_seven - 1, 10s), after_seven - 1);
}

TEST(ChangesTest, ForgottenJobsAreTakenForPerhapsChanged) {
  common::Changes changes;
  for (core::JobId id = 1; id <= static_cast<core::JobId>(common::Changes::kJobs) + 10; ++id) changes.bump(id);
  EXPECT_GT(changes.wait(1, 1, 10s), 1U);
}

}  // namespace
}  // namespace service::testing
