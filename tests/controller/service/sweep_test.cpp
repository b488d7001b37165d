// Goal: a sweep is stored whole or not at all, keeps its limit where nobody else does, and no job minds another's end.
// Method: the real controller without threads on an executor with and without a queue; crashes at every step.
#include <gmock/gmock.h>

#include <set>
#include <utility>

#include "spec/jobfile/job_keys.h"
#include "tests/controller/service/bench.h"
#include "tests/recipe_values.h"

namespace service::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Attempts with a process that nobody has asked to leave.
std::size_t alive(Bench& bench) {
  std::lock_guard lock(bench.machine->mutex);
  return static_cast<std::size_t>(
      std::count_if(bench.machine->attempts.begin(), bench.machine->attempts.end(), [](const auto& entry) {
        return std::any_of(entry.second.ranks.begin(), entry.second.ranks.end(), [](auto& r) { return r.alive; });
      }));
}

std::vector<core::AttemptKey> alive_keys(Bench& bench) {
  std::vector<core::AttemptKey> keys;
  std::lock_guard lock(bench.machine->mutex);
  for (const auto& [key, attempt] : bench.machine->attempts) {
    if (attempt.ranks.front().alive) keys.push_back(key);
  }
  return keys;
}

/// Ends one running attempt a round until nothing is left; jobs with an even id fail each time.
class Driver {
 public:
  Driver(Bench& bench, std::size_t parallel) : bench_(bench), parallel_(parallel) {}
  /// True when nothing runs or waits any more.
  bool round() {
    most_ = std::max(most_, alive(bench_));
    EXPECT_LE(alive(bench_), parallel_);
    const auto keys = alive_keys(bench_);
    if (!keys.empty()) bench_.executor().end(keys.front(), 0, {keys.front().job % 2 == 0 ? 1 : 0, 0});
    bench_.pass(1s);
    return open() == 0;
  }
  std::int64_t open() {
    muster::v1::ListRequest request;
    for (const char* state : {"pending", "queued", "running", "stopping", "waiting"}) request.add_states(state);
    return bench_.controller().list(request).total();
  }
  std::size_t most() const { return most_; }

 private:
  Bench& bench_;
  const std::size_t parallel_;
  std::size_t most_ = 0;
};

void expect_ends(Bench& bench, const std::vector<core::JobId>& ids) {
  for (const auto id : ids) {
    EXPECT_EQ(bench.state(id), id % 2 == 0 ? "failed" : "succeeded") << id;
    EXPECT_EQ(bench.job(id).attempts_size(), id % 2 == 0 ? 4 : 1) << id;
  }
  for (const auto& [key, starts] : bench.machine->starts) EXPECT_EQ(starts, 1);
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

class Sweep : public ::testing::TestWithParam<StoreKind> {
 protected:
  Bench bench{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Stores, Sweep, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Sweep, WithoutAQueueAtMostSoManyHaveAnAttemptAtOnceAndAllEnd) {
  const auto ids = bench.submit_sweep("a", 8, 3);
  ASSERT_EQ(ids.size(), 8U);
  Driver driver(bench, 3);
  for (int i = 0; i < 100 && !driver.round(); ++i) {
  }
  EXPECT_EQ(driver.most(), 3U);
  expect_ends(bench, ids);
  EXPECT_TRUE(bench.machine->batches.empty()) << "there is nobody to hand them over to together";
}

TEST_P(Sweep, ItsLimitOutlivesACrashOfTheControllerAnywhere) {
  const auto run = [&](int crash_at) {
    Bench crashed(GetParam());
    const auto ids = crashed.submit_sweep("a", 4, 2);
    Driver driver(crashed, 2);
    crashed.point.steps = 0;
    crashed.point.at = crash_at;
    for (int i = 0; i < 60; ++i) {
      try {
        if (driver.round()) break;
      } catch (const Crash&) {
        crashed.point.at = -1;
        crashed.restart();
        crashed.tick();
      }
    }
    EXPECT_EQ(driver.most(), 2U);
    expect_ends(crashed, ids);
    return crashed.point.steps;
  };
  const int steps = run(-1);
  ASSERT_GT(steps, 30);
  for (int at = 0; at < steps && !HasFailure(); at += 3) {
    SCOPED_TRACE("crash at step " + std::to_string(at));
    run(at);
  }
}

TEST_P(Sweep, ALimitOfNoneStartsAllAtOnce) {
  bench.submit_sweep("a", 5, 0);
  EXPECT_EQ(alive(bench), 5U);
}

TEST_P(Sweep, SweepsDoNotLimitEachOtherNorJobsOfTheirOwn) {
  bench.submit_sweep("a", 3, 1);
  bench.submit_sweep("b", 3, 2);
  bench.submit(command_request("c"));
  EXPECT_EQ(alive(bench), 4U);
}

TEST_P(Sweep, AnElementThatIsHeldCancelledOrWaitsTakesNoPlace) {
  const auto ids = bench.submit_sweep("a", 4, 1);
  ASSERT_TRUE(bench.controller().hold(ids[1], "ben").ok());
  ASSERT_TRUE(bench.controller().cancel(ids[2], "ben").ok());
  bench.executor().end({ids[0], 1}, 0, {1, 0});  // and waits for its backoff
  bench.pass(200ms);
  EXPECT_THAT(alive_keys(bench), ElementsAre(core::AttemptKey{ids[3], 1}));
  ASSERT_TRUE(bench.controller().release(ids[1], "ben").ok());
  bench.pass(3s);
  EXPECT_THAT(alive_keys(bench), ElementsAre(core::AttemptKey{ids[3], 1})) << "the place is taken";
  bench.executor().end({ids[3], 1}, 0, {0, 0});
  bench.pass(200ms);
  EXPECT_EQ(alive(bench), 1U);
}

TEST_P(Sweep, ALaunchThatMustWaitGivesItsPlaceToNobodyForLong) {
  bench.machine->launch_later = "not now";
  const auto ids = bench.submit_sweep("a", 3, 1);
  bench.pass(3s);
  EXPECT_EQ(alive(bench), 0U);
  bench.machine->launch_later.clear();
  bench.pass(2s);
  EXPECT_EQ(alive(bench), 1U);
}

TEST_P(Sweep, OneThatMayHaveBeenLaunchedKeepsItsPlace) {
  bench.machine->launch_later = "no answer";
  bench.machine->takes_silently = true;
  const auto ids = bench.submit_sweep("a", 2, 1);
  bench.pass(5s);
  EXPECT_THAT(alive_keys(bench), ElementsAre(core::AttemptKey{ids[0], 1})) << "or both might have been";
  bench.machine->launch_later.clear();
  bench.pass(2s);
  EXPECT_THAT(alive_keys(bench), ElementsAre(core::AttemptKey{ids[0], 1}));
}

TEST_P(Sweep, OneThatMayHaveBeenLaunchedAndIsCancelledKeepsNobodyBack) {
  bench.machine->launch_later = "no answer";
  bench.machine->takes_silently = true;
  const auto ids = bench.submit_sweep("a", 2, 1);
  bench.machine->launch_later.clear();
  ASSERT_TRUE(bench.controller().cancel(ids[0], "ben").ok());
  bench.pass(2s);
  EXPECT_TRUE(bench.machine->has({ids[1], 1}));
}

TEST_P(Sweep, OneThatIsCancelledWhileItStartsIsStoppedBeforeAnotherTakesItsSlot) {
  std::vector<core::AttemptKey> started;
  std::size_t stops_before_the_second = 0;
  bench.machine->on_start = [&](const core::AttemptKey& key) {
    started.push_back(key);
    if (started.size() == 1) {
      EXPECT_TRUE(bench.controller().cancel(key.job, "ben").ok());
    }
    if (started.size() == 2) stops_before_the_second = bench.machine->stop_count(started.front());
  };
  const auto ids = bench.submit_sweep("a", 2, 1);
  bench.pass(3s);
  EXPECT_EQ(bench.state(ids[0]), "cancelled");
  EXPECT_THAT(started, ElementsAre(core::AttemptKey{ids[0], 1}, core::AttemptKey{ids[1], 1}));
  EXPECT_EQ(stops_before_the_second, 1U);
}

TEST_P(Sweep, WithAQueueFirstAttemptsThatNothingLimitsAreHandedOverTogether) {
  bench.machine->queue = true;
  bench.machine->launch_later = "slurmctld does not answer";
  const auto ids = bench.submit_sweep("a", 5, 0);
  EXPECT_THAT(bench.machine->batches, ElementsAre(5U));
  bench.machine->batches.clear();
  bench.machine->launch_later.clear();
  bench.restart();
  bench.pass(1100ms);
  EXPECT_THAT(bench.machine->batches, ElementsAre(5U)) << "again together";
  for (const auto id : ids) {
    EXPECT_EQ(bench.state(id), "queued");
    EXPECT_EQ(bench.machine->get({id, 1}).request.sweep, "s" + std::to_string(ids[0]));
    EXPECT_EQ(bench.machine->starts[(core::AttemptKey{id, 1})], 1);
  }
}

TEST_P(Sweep, WithAQueueALimitedOneIsHandedOverOneByOneAsSlotsComeFree) {
  bench.machine->queue = true;
  const auto ids = bench.submit_sweep("a", 4, 2);
  EXPECT_THAT(alive_keys(bench), ElementsAre(core::AttemptKey{ids[0], 1}, core::AttemptKey{ids[1], 1}));
  EXPECT_EQ(bench.machine->get({ids[0], 1}).request.sweep, "");
  bench.executor().end({ids[0], 1}, 0, {0, 0});
  bench.pass(1s);
  EXPECT_THAT(alive_keys(bench), ElementsAre(core::AttemptKey{ids[1], 1}, core::AttemptKey{ids[2], 1}));
  EXPECT_TRUE(bench.machine->batches.empty());
}

TEST_P(Sweep, WithSlurmsOwnThrottleItIsHandedOverTogetherAndNothingElseLimitsIt) {
  bench.machine->queue = true;
  auto request = sweep_request("a", 4, 0);
  for (auto& spec : *request.mutable_specs())
    jobfile::set(spec, *jobfile::find_key("slurm.array_parallelism"), std::int64_t{1});
  ASSERT_TRUE(bench.controller().submit_sweep(request).ok());
  bench.tick();
  EXPECT_THAT(bench.machine->batches, ElementsAre(4U));
  EXPECT_EQ(bench.machine->get({4, 1}).request.slurm.array_parallelism, 1U);
  bench.executor().begin({1, 1}, {"n1"});
  bench.tick();
  bench.executor().end({1, 1}, 0, {1, 0});
  bench.pass(2s);
  EXPECT_EQ(bench.attempt(1, 2).state(), "queued") << "what comes back is a job of its own";
  request.set_request_id("b");
  request.set_parallel(2);
  const auto both = bench.controller().submit_sweep(request);
  ASSERT_FALSE(both.ok());
  EXPECT_THAT(both.refusal().text, HasSubstr("job 0 of the sweep: slurm.array_parallelism \"1\": the sweep's parallel "
                                             "is 2: want either"));
}

TEST_P(Sweep, SomeOfABatchThatFailToStartDoNotTouchTheOthers) {
  bench.machine->queue = true;
  auto request = sweep_request("a", 3, 0);
  request.mutable_specs(1)->mutable_recipe()->set_kind("causal_lm");
  test::put(*request.mutable_specs(1), "data.source", "fixture");
  test::put(*request.mutable_specs(1), "train.steps", 1);
  request.mutable_specs(1)->mutable_checkpoint()->set_folder("/proc/checkpoints");
  ASSERT_TRUE(bench.controller().submit_sweep(request).ok());
  bench.tick();
  EXPECT_THAT(bench.machine->batches, ElementsAre(2U));
  EXPECT_EQ(bench.state(1), "queued");
  EXPECT_THAT(bench.attempt(2, 1).reason(), HasSubstr("/proc/checkpoints"));
  EXPECT_EQ(bench.state(3), "queued");
}

/// The queue of a scheduler, which starts whatever it has.
class Queue {
 public:
  Queue(Bench& bench, std::size_t parallel) : bench_(bench), parallel_(parallel) {}
  /// Starts what it has, and ends the oldest that runs; jobs with an even id fail each time.
  void round() {
    for (const auto& key : alive_keys(bench_)) {
      if (running_.insert(key).second) bench_.executor().begin(key, {"n1"});
    }
    bench_.tick();
    EXPECT_LE(running_.size(), parallel_);
    if (running_.empty()) return;
    const auto key = *running_.begin();
    running_.erase(running_.begin());
    bench_.executor().end(key, 0, {key.job % 2 == 0 ? 1 : 0, 0});
    bench_.pass(5s);
  }

 private:
  Bench& bench_;
  const std::size_t parallel_;
  std::set<core::AttemptKey> running_;
};

TEST_P(Sweep, InAQueueAtMostSoManyRunAtOnceWhateverComesBack) {
  for (const bool restarts : {false, true}) {
    for (const std::size_t parallel : {1, 2, 3}) {
      SCOPED_TRACE(parallel);
      Bench one(GetParam());
      one.machine->queue = true;
      const auto ids = one.submit_sweep("a", 8, static_cast<std::uint32_t>(parallel));
      Queue queue(one, parallel);
      for (int i = 0; i < 100 && !one.store().load_open().empty(); ++i) {
        queue.round();
        if (restarts) one.restart();
      }
      expect_ends(one, ids);
    }
  }
}

TEST_P(Sweep, WhatComesBackWaitsForItsTurnAndSaysSo) {
  bench.machine->queue = true;
  const auto ids = bench.submit_sweep("a", 3, 1);
  bench.executor().begin({ids[0], 1}, {"n1"});
  bench.tick();
  bench.executor().end({ids[0], 1}, 0, {1, 0});
  bench.pass(2s);
  EXPECT_EQ(bench.state(ids[1]), "queued") << "its turn came while the first waited for its backoff";
  EXPECT_EQ(bench.state(ids[0]), "waiting");
  EXPECT_EQ(bench.why(ids[0]).reason(), "waits for its turn: at most 1 of sweep s1 have an attempt at once");
  ASSERT_TRUE(bench.controller().hold(ids[2], "ben").ok());
  bench.executor().begin({ids[1], 1}, {"n1"});
  bench.tick();
  bench.executor().end({ids[1], 1}, 0, {0, 0});
  bench.pass(2s);
  EXPECT_EQ(bench.state(ids[0]), "queued") << "one that a person holds keeps nobody back";
  EXPECT_EQ(bench.attempt(ids[0], 2).state(), "queued");
}

/// Whom the queue was told to hold, or to let go, since the last time.
std::vector<std::pair<core::AttemptKey, bool>> told(Bench& bench) {
  return std::exchange(bench.machine->holds, {});
}

TEST_P(Sweep, OneThatIsReleasedInTheQueueWaitsForASlotAndSaysSo) {
  bench.machine->queue = true;
  const auto ids = bench.submit_sweep("a", 2, 1);
  ASSERT_TRUE(bench.controller().hold(ids[0], "ben").ok());
  bench.pass(1s);
  EXPECT_THAT(told(bench), ElementsAre(Pair(core::AttemptKey{ids[0], 1}, true)));
  EXPECT_EQ(bench.state(ids[1]), "queued") << "what the queue holds has given its slot back";
  ASSERT_TRUE(bench.controller().release(ids[0], "ben").ok());
  for (const bool restarts : {false, true}) {
    if (restarts) bench.restart();
    bench.pass(3s);
    EXPECT_THAT(told(bench), IsEmpty()) << "the queue would start it beside the other";
    EXPECT_EQ(bench.why(ids[0]).reason(),
              "released, and waits for its turn: at most 1 of sweep s1 have an attempt at once");
    EXPECT_EQ(bench.why(ids[0]).action(), "It starts by itself.");
  }
  bench.executor().end({ids[1], 1}, 0, {1, 0});
  bench.pass(5s);
  EXPECT_THAT(told(bench), ElementsAre(Pair(core::AttemptKey{ids[0], 1}, false)));
  EXPECT_EQ(bench.why(ids[0]).reason(), "attempt 1: queued as Slurm job 101");
  EXPECT_EQ(bench.state(ids[1]), "waiting") << "what came back waits for it in turn";
  bench.executor().end({ids[0], 1}, 0, {0, 0});
  bench.pass(1s);
  EXPECT_EQ(bench.attempt(ids[1], 2).state(), "queued");
}

TEST_P(Sweep, OneThatTheQueueDoesNotHoldYetKeepsItsSlot) {
  bench.machine->queue = true;
  const auto ids = bench.submit_sweep("a", 2, 1);
  bench.machine->answers = false;
  ASSERT_TRUE(bench.controller().hold(ids[0], "ben").ok());
  for (const bool restarts : {false, true}) {
    if (restarts) bench.restart();
    bench.pass(3s);
    EXPECT_EQ(bench.state(ids[1]), "pending") << "the queue may start the other";
  }
  bench.machine->answers = true;
  bench.pass(2s);
  EXPECT_EQ(bench.state(ids[1]), "queued");
}

// Its hold was never confirmed, so its slot was never free.
TEST_P(Sweep, OneThatIsReleasedBeforeTheQueueHeldItIsLetGoAtOnce) {
  bench.machine->queue = true;
  const auto ids = bench.submit_sweep("a", 2, 1);
  bench.machine->answers = false;
  ASSERT_TRUE(bench.controller().hold(ids[0], "ben").ok());
  bench.pass(1s);
  ASSERT_TRUE(bench.controller().release(ids[0], "ben").ok());
  bench.restart();
  bench.machine->answers = true;
  told(bench);
  bench.pass(2s);
  EXPECT_THAT(told(bench), ElementsAre(Pair(core::AttemptKey{ids[0], 1}, false)));
  EXPECT_EQ(bench.state(ids[1]), "pending");
}

// The queue was asked, and its answer got lost: it may have let the attempt go.
TEST_P(Sweep, OneThatMayHaveBeenLetGoKeepsItsSlotOverARestart) {
  bench.machine->queue = true;
  const auto ids = bench.submit_sweep("a", 2, 1);
  ASSERT_TRUE(bench.controller().hold(ids[0], "ben").ok());
  bench.pass(1s);
  ASSERT_EQ(bench.state(ids[1]), "queued");
  ASSERT_TRUE(bench.controller().release(ids[0], "ben").ok());
  bench.machine->answers = false;
  bench.executor().end({ids[1], 1}, 0, {1, 0});
  bench.pass(3s);
  ASSERT_FALSE(told(bench).empty());
  bench.restart();
  bench.pass(5s);
  EXPECT_EQ(bench.state(ids[1]), "waiting");
  bench.executor().end({ids[0], 1}, 0, {0, 0});
  bench.pass(2s);
  EXPECT_EQ(bench.state(ids[1]), "queued");
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Sweep, OfSeveralThatAreReleasedAtOnceAsManyGoAsThereIsRoomFor) {
  bench.machine->queue = true;
  const auto ids = bench.submit_sweep("a", 5, 2);
  for (const int i : {0, 1, 2}) {
    ASSERT_TRUE(bench.controller().hold(ids[i], "ben").ok());
    bench.pass(1s);
  }
  ASSERT_EQ(bench.state(ids[3]), "queued");
  ASSERT_EQ(bench.state(ids[4]), "queued");
  EXPECT_EQ(told(bench).size(), 3U);
  for (const int i : {0, 1, 2}) ASSERT_TRUE(bench.controller().release(ids[i], "ben").ok());
  bench.pass(2s);
  EXPECT_THAT(told(bench), IsEmpty());
  bench.executor().end({ids[3], 1}, 0, {0, 0});
  bench.pass(2s);
  EXPECT_THAT(told(bench), ElementsAre(Pair(core::AttemptKey{ids[0], 1}, false)));
  ASSERT_TRUE(bench.controller().hold(ids[0], "ben").ok());
  bench.pass(2s);
  EXPECT_THAT(told(bench),
              ElementsAre(Pair(core::AttemptKey{ids[0], 1}, true), Pair(core::AttemptKey{ids[1], 1}, false)));
  bench.executor().end({ids[4], 1}, 0, {0, 0});
  bench.pass(2s);
  EXPECT_THAT(told(bench), ElementsAre(Pair(core::AttemptKey{ids[2], 1}, false)));
}

TEST_P(Sweep, AFirstAttemptThatIsReadyLateWaitsForASlot) {
  bench.machine->queue = true;
  auto request = sweep_request("a", 5, 2);
  for (const int i : {2, 3, 4}) request.mutable_specs(i)->set_hold(true);
  ASSERT_TRUE(bench.controller().submit_sweep(request).ok());
  bench.tick();
  bench.executor().end({1, 1}, 0, {1, 0});
  bench.pass(2s);
  ASSERT_EQ(bench.attempt(1, 2).state(), "queued");
  for (const core::JobId id : {3, 4, 5}) ASSERT_TRUE(bench.controller().release(id, "ben").ok());
  bench.pass(2s);
  EXPECT_THAT(alive_keys(bench), ElementsAre(core::AttemptKey{1, 2}, core::AttemptKey{2, 1}));
  EXPECT_EQ(bench.why(3).reason(), "waits for its turn: at most 2 of sweep s1 have an attempt at once");
  bench.executor().end({2, 1}, 0, {0, 0});
  bench.tick();
  EXPECT_THAT(alive_keys(bench), ElementsAre(core::AttemptKey{1, 2}, core::AttemptKey{3, 1}));
}

// The write that says so comes before the executor is asked.
TEST_P(Sweep, WhatMayBeThereIsReadFromTheStore) {
  bench.machine->queue = true;
  bench.machine->launch_later = "no answer";
  bench.machine->takes_silently = true;
  const auto ids = bench.submit_sweep("a", 2, 1);
  using store::ActionState;
  EXPECT_EQ(bench.store().pending_actions()[0].state, ActionState::kLaunching);
  EXPECT_EQ(bench.store().pending_actions()[1].state, ActionState::kPending);
  ASSERT_TRUE(bench.controller().cancel(ids[0], "ben").ok());
  bench.restart();
  bench.pass(3s);
  EXPECT_EQ(bench.state(ids[1]), "pending") << "whether the cancelled one is there is not known";
  bench.machine->launch_later.clear();
  bench.pass(2s);
  EXPECT_GE(bench.machine->stop_count({ids[0], 1}), 1U);
  EXPECT_EQ(bench.state(ids[1]), "queued");
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Sweep, IsStoredWholeOrNotAtAll) {
  const auto request = sweep_request("a", 5, 2);
  for (const int at : {0, 1}) {
    Bench crashed(GetParam());
    crashed.point.steps = 0;
    crashed.point.at = at;
    EXPECT_THROW(crashed.controller().submit_sweep(request), Crash);
    crashed.point.at = -1;
    crashed.restart();
    EXPECT_EQ(crashed.controller().list({}).total(), at == 0 ? 0 : 5);
    const auto again = crashed.controller().submit_sweep(request);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again.value().already_submitted(), at == 1);
    EXPECT_THAT(again.value().job_ids(), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_EQ(crashed.controller().list({}).total(), 5);
  }
}

TEST(SweepStore, AFullDiskRefusesItAndNothingIsKept) {
  Bench bench(StoreKind::kMemory);
  bench.memory().fail_writes(store::Error(store::Error::Kind::kFull, "no space left"));
  const auto refused = bench.controller().submit_sweep(sweep_request("a", 5, 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.refusal().kind, common::Refusal::Kind::kUnchanged);
  EXPECT_THAT(refused.refusal().text, HasSubstr("no space left"));
  bench.memory().fail_writes(std::nullopt);
  bench.pass(1s);
  EXPECT_EQ(bench.controller().list({}).total(), 0);
  EXPECT_EQ(bench.submit_sweep("a", 5, 2).size(), 5U);
}

// Sent once; kept with each job, so that one of them can be submitted again by itself.
TEST(SweepStore, WhatTheJobsTookFromTheirSubmitterIsKeptWithEach) {
  Bench bench(StoreKind::kMemory);
  auto request = sweep_request("a", 3, 0);
  for (auto& spec : *request.mutable_specs()) spec.set_environment("submit");
  (*request.mutable_submitted_env())["PATH"] = "/venv/bin";
  (*request.mutable_submitted_env())["CONDA_TOKEN"] = "secret";
  (*request.mutable_specs(1)->mutable_submitted_env())["PATH"] = "/own";
  request.mutable_specs(2)->set_environment("clean");
  ASSERT_TRUE(bench.controller().submit_sweep(request).ok());
  EXPECT_EQ(bench.controller().spec(1).value().submitted_env().at("CONDA_TOKEN"), "secret");
  EXPECT_EQ(bench.controller().spec(2).value().submitted_env().at("PATH"), "/own");
  EXPECT_EQ(bench.controller().spec(3).value().submitted_env_size(), 0);
  const auto shown = bench.controller().get(1).value().spec().submitted_env();
  EXPECT_EQ(shown.at("CONDA_TOKEN"), "********") << "what is shown has no secrets";
  EXPECT_EQ(shown.at("PATH"), "/venv/bin");
  EXPECT_FALSE(bench.controller().spec(4).ok());
}

TEST_P(Sweep, TheSameRequestAgainIsTheSameSweep) {
  const auto ids = bench.submit_sweep("a", 3, 0);
  bench.restart();
  for (const int count : {3, 7}) {
    const auto again = bench.controller().submit_sweep(sweep_request("a", count, 0));
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE(again.value().already_submitted());
    EXPECT_EQ(again.value().sweep(), "s1");
    EXPECT_THAT(again.value().job_ids(), ElementsAre(ids[0], ids[1], ids[2])) << "as it was then";
  }
  bench.submit(command_request("job"));
  const auto mixed = bench.controller().submit_sweep(sweep_request("job", 3, 0));
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.refusal().text, "request_id: it was used for job 4, which is no sweep; choose another one");
  EXPECT_EQ(bench.controller().list({}).total(), 4);
}

muster::v1::ChangeSweepRequest change_request(const std::string& sweep, muster::v1::SweepChange change) {
  muster::v1::ChangeSweepRequest request;
  request.set_sweep(sweep);
  request.set_user("ben");
  request.set_change(change);
  return request;
}

TEST_P(Sweep, IsCancelledInOneTransactionAndStoppedInAnother) {
  bench.machine->queue = true;
  const auto ids = bench.submit_sweep("a", 500, 0);
  bench.executor().begin({ids[0], 1}, {"n1"});
  bench.tick();
  bench.executor().end({ids[0], 1}, 0, {0, 0});
  bench.tick();
  bench.store().appends = bench.store().completions = 0;
  const auto changed = bench.controller().change_sweep(change_request("s1", muster::v1::SWEEP_CHANGE_CANCEL));
  ASSERT_TRUE(changed.ok()) << changed.refusal().text;
  EXPECT_EQ(bench.store().appends, 1);
  ASSERT_EQ(changed.value().jobs_size(), 499);
  EXPECT_EQ(changed.value().jobs(0).id(), ids[1]);
  EXPECT_THAT(changed.value().jobs(0).reason(), HasSubstr("cancelled by ben"));
  EXPECT_EQ(changed.value().refused(), 1U);
  EXPECT_EQ(changed.value().refusal(), "job 1 has succeeded already: there is nothing to cancel");
  bench.tick();
  EXPECT_EQ(bench.store().completions, 1);
  for (std::size_t i = 1; i < ids.size(); ++i) EXPECT_EQ(bench.machine->stop_count({ids[i], 1}), 1U) << i;
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Sweep, IsHeldReleasedAndRequeuedTogether) {
  const auto ids = bench.submit_sweep("a", 3, 1);
  EXPECT_TRUE(bench.controller().change_sweep(change_request("s1", muster::v1::SWEEP_CHANGE_HOLD)).ok());
  for (const auto id : ids) EXPECT_EQ(bench.job(id).held_by(), "ben");
  EXPECT_TRUE(bench.controller().change_sweep(change_request("s1", muster::v1::SWEEP_CHANGE_RELEASE)).ok());
  for (const auto id : ids) EXPECT_EQ(bench.job(id).held_by(), "");
  const auto requeued = bench.controller().change_sweep(change_request("s1", muster::v1::SWEEP_CHANGE_REQUEUE));
  ASSERT_TRUE(requeued.ok());
  EXPECT_EQ(requeued.value().jobs_size(), 1) << "the others have not begun";
  EXPECT_EQ(requeued.value().refused(), 2U);
}

TEST_P(Sweep, AChangeThatCannotBeIsRefusedInPlainWords) {
  const auto ids = bench.submit_sweep("a", 2, 0);
  const auto refusal = [&](const std::string& sweep, muster::v1::SweepChange change) {
    const auto outcome = bench.controller().change_sweep(change_request(sweep, change));
    EXPECT_FALSE(outcome.ok());
    return outcome.ok() ? common::Refusal{} : outcome.refusal();
  };
  for (const auto* sweep : {"s9", ""}) {
    EXPECT_EQ(refusal(sweep, muster::v1::SWEEP_CHANGE_CANCEL).kind, common::Refusal::Kind::kNotFound) << sweep;
  }
  EXPECT_EQ(refusal("s1", muster::v1::SWEEP_CHANGE_UNSPECIFIED).text,
            "change 0: want cancel, requeue, hold or release");
  const auto none = refusal("s1", muster::v1::SWEEP_CHANGE_RELEASE);
  EXPECT_EQ(none.kind, common::Refusal::Kind::kWrongState);
  EXPECT_EQ(none.text, "none of the 2 jobs of sweep s1 allows it; the last said: job 2 is not held");
}

TEST_P(Sweep, OneBadJobRefusesAllAndIsNamed) {
  auto request = sweep_request("a", 3, 0);
  request.mutable_specs(2)->mutable_resources()->set_ranks_per_node(100'000);
  const auto refused = bench.controller().submit_sweep(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.refusal().text, HasSubstr("job 2 of the sweep: resources.ranks_per_node"));
  EXPECT_FALSE(bench.controller().submit_sweep(sweep_request("b", 0, 0)).ok());
  EXPECT_FALSE(bench.controller().submit_sweep(sweep_request(std::string(65, 'x'), 1, 0)).ok());
  const auto many = bench.controller().submit_sweep(sweep_request("c", 10'001, 0));
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.refusal().kind, common::Refusal::Kind::kLimit);
  EXPECT_THAT(many.refusal().text, HasSubstr("at most 10000"));
  EXPECT_EQ(bench.controller().list({}).total(), 0);
}

TEST_P(Sweep, ItsJobsAreListedTogetherAndShowWhatDiffers) {
  bench.submit(command_request("alone"));
  const auto ids = bench.submit_sweep("a", 3, 2);
  const auto job = bench.job(ids[1]);
  EXPECT_EQ(job.sweep().sweep(), "s2");
  EXPECT_EQ(job.sweep().index(), 1U);
  EXPECT_EQ(job.sweep().parallel(), 2U);
  EXPECT_EQ(job.sweep().settings().at("train.seed"), "1");
  muster::v1::ListRequest request;
  request.set_sweep("s2");
  const auto list = bench.controller().list(request);
  EXPECT_EQ(list.total(), 3);
  ASSERT_EQ(list.jobs_size(), 3);
  EXPECT_EQ(list.jobs(0).id(), ids[2]);
  EXPECT_EQ(list.jobs(0).sweep().index(), 2U);
  EXPECT_EQ(list.jobs(0).sweep().settings().at("train.seed"), "2");
  EXPECT_FALSE(bench.job(1).has_sweep());
}

TEST_P(Sweep, AJobCannotClaimToBeOfASweep) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_sweep()->set_sweep("s1");
  request.mutable_spec()->mutable_sweep()->set_parallel(1);
  EXPECT_FALSE(bench.job(bench.submit(request)).has_sweep());
}

}  // namespace
}  // namespace service::testing
