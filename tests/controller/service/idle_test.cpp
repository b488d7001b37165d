// Goal: a controller that has nothing to do sleeps until something happens, and is not late when it does.
// Method: the real controller without threads says how long its threads would sleep; time moves only when told.
#include <gmock/gmock.h>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

constexpr std::optional<core::Millis> kUntilSomethingHappens;
const core::Millis kWatches = ControllerOptions{}.tick_interval;

class Idling : public ::testing::Test {
 protected:
  std::optional<core::Millis> sleeps() { return bench.controller().tick(); }
  core::JobId submit(const std::string& name, const std::string& after = {}) {
    auto request = command_request(name);
    if (!after.empty()) request.mutable_spec()->add_after(after);
    return bench.submit(request);
  }
  void end(core::JobId id, core::AttemptNumber attempt, int code) {
    bench.executor().end({id, attempt}, 0, {code, 0});
    bench.tick();
  }
  Bench bench;
};

TEST_F(Idling, SleepsWithoutJobs) {
  EXPECT_EQ(sleeps(), kUntilSomethingHappens);
}

TEST_F(Idling, WatchesWhileAnAttemptRunsAndSleepsAfterItsEnd) {
  const auto job = submit("a");
  EXPECT_EQ(sleeps(), kWatches);
  end(job, 1, 0);
  EXPECT_EQ(bench.state(job), "succeeded");
  EXPECT_EQ(sleeps(), kUntilSomethingHappens);
}

TEST_F(Idling, AJobThatAPersonHoldsWakesNobody) {
  const auto running = submit("a");
  auto request = command_request("b");
  request.mutable_spec()->set_hold(true);
  const auto held = bench.submit(request);
  end(running, 1, 0);
  EXPECT_EQ(bench.state(held), "pending");
  EXPECT_EQ(sleeps(), kUntilSomethingHappens);
  EXPECT_TRUE(bench.controller().release(held, "ada").ok());
  bench.tick();
  EXPECT_EQ(bench.state(held), "running");
}

TEST_F(Idling, SleepsUntilTheBackoffIsOver) {
  const auto job = submit("a");
  end(job, 1, 1);
  ASSERT_EQ(bench.state(job), "waiting");
  const auto first = sleeps();
  ASSERT_TRUE(first);
  EXPECT_GT(*first, kWatches);
  bench.clock.advance(*first - 1ms);
  EXPECT_EQ(sleeps(), 1ms);
  EXPECT_EQ(bench.state(job), "waiting");
  bench.clock.advance(1ms);
  bench.tick();
  EXPECT_EQ(bench.state(job), "running");
}

TEST_F(Idling, AJobThatWaitsForAnotherStartsAtItsEnd) {
  const auto first = submit("a");
  const auto second = submit("b", "succeeded:" + std::to_string(first));
  bench.controller().hold(first, "ada");
  end(first, 1, 1);
  ASSERT_EQ(bench.state(first), "waiting");
  EXPECT_EQ(sleeps(), kUntilSomethingHappens) << "what it waits for is held";
  EXPECT_TRUE(bench.controller().cancel(first, "ada").ok());
  bench.tick();
  EXPECT_EQ(bench.state(second), "cancelled");
}

/// From the only heartbeat of a job until the job is suspected, on a controller that has had nothing to do for `rest`.
core::Millis silence_until_suspected(core::Millis rest) {
  Bench bench;
  const auto before = bench.submit(command_request("a"));
  bench.executor().end({before, 1}, 0, {0, 0});
  bench.tick();
  bench.clock.advance(rest);
  const auto job = bench.submit(recipe_request("b", 1));
  bench.heartbeat({job, 1}, 0, 1);
  core::Millis silent{0};
  while (bench.job(job).status().find("suspected") == std::string::npos && silent < 1h) {
    bench.pass(100ms);
    silent += 100ms;
  }
  return silent;
}

// Silence is judged by rounds that come in time, and the first round after a rest is not late.
TEST(Idle, AfterARestSilenceIsFoundAsSoonAsEver) {
  EXPECT_EQ(silence_until_suspected(1h), silence_until_suspected(0ms));
}

}  // namespace
}  // namespace service::testing
