// Goal: a musterd that leaves begins nothing and judges nobody, though people and ranks are still answered.
// Method: the controller on a bench. The next one on the same store does what was left.
#include <gmock/gmock.h>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

TEST(LeavingController, TakesAJobAndLaunchesItNextTime) {
  Bench bench;
  bench.controller().begin_to_leave();
  const auto job = bench.submit(command_request("late"));
  bench.pass(5s);
  EXPECT_FALSE(bench.machine->has({job, 1}));
  bench.restart();
  bench.tick();
  EXPECT_TRUE(bench.machine->has({job, 1}));
}

TEST(LeavingController, CallsNobodySilentWhoseStreamItCloses) {
  Bench bench;
  const auto job = bench.submit(recipe_request("two"));
  bench.pass(10s, [&] { bench.heartbeats({job, 1}, 2, 5); });
  bench.controller().begin_to_leave();
  bench.pass(20min);
  EXPECT_EQ(bench.job(job).attempts_size(), 1);
  EXPECT_EQ(bench.state(job), "running");
  EXPECT_EQ(bench.count_events(job, "attempt_suspected"), 0);
}

TEST(LeavingController, WritesDownAnEndAndLeavesWhatFollowsToTheNext) {
  Bench bench;
  const auto job = bench.submit(recipe_request("two"));
  bench.heartbeats({job, 1}, 2, 5);
  bench.controller().begin_to_leave();
  bench.executor().end_all({job, 1}, {0, 9});
  bench.pass(10s);
  EXPECT_FALSE(bench.machine->has({job, 2}));
  bench.restart();
  bench.pass(10s);
  EXPECT_TRUE(bench.machine->has({job, 2}));
}

}  // namespace
}  // namespace service::testing
