// Goal: a job that waits for others starts, or ends, as soon as that is decided, controller restarts or not.
// Method: the real controller without threads; store in memory and in SQLite.
#include <gmock/gmock.h>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Dependency : public ::testing::TestWithParam<StoreKind> {
 protected:
  core::JobId submit(const std::string& name, const std::vector<std::string>& after = {}) {
    auto request = command_request(name);
    for (const auto& text : after) request.mutable_spec()->add_after(text);
    return bench.submit(request);
  }
  void end(core::JobId id, int code) { bench.executor().end({id, 1}, 0, {code, 0}); }
  Bench bench{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Stores, Dependency, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Dependency, AJobStartsWhenTheOneItWaitsForHasSucceeded) {
  const auto first = submit("a");
  const auto second = submit("b", {"succeeded:1"});
  bench.pass(3s);
  EXPECT_EQ(bench.state(second), "pending");
  EXPECT_EQ(bench.job(second).reason(), "waiting for job 1 to succeed");
  end(first, 0);
  bench.tick();
  EXPECT_EQ(bench.state(second), "running");
  EXPECT_EQ(bench.count_events(second, "dependency_ended"), 1);
}

TEST_P(Dependency, OneThatCanNoMoreBeMetCancelsTheJobAndThoseAfterIt) {
  const auto first = submit("a");
  const auto second = submit("b", {"succeeded:1"});
  const auto third = submit("c", {"succeeded:2"});
  const auto cleanup = submit("d", {"failed:2"});
  end(first, 93);
  bench.pass(500ms);
  EXPECT_EQ(bench.state(first), "failed");
  EXPECT_EQ(bench.state(second), "cancelled");
  EXPECT_THAT(bench.job(second).reason(), HasSubstr("job 1 failed, so this job can never start"));
  EXPECT_EQ(bench.state(third), "cancelled");
  EXPECT_EQ(bench.state(cleanup), "running") << "cancelled is failed";
}

TEST_P(Dependency, AJobThatComesBackHasNotEnded) {
  const auto first = submit("a");
  const auto second = submit("b", {"failed:1"});
  end(first, 1);
  bench.pass(500ms);
  EXPECT_EQ(bench.state(first), "waiting");
  EXPECT_EQ(bench.state(second), "pending");
}

TEST_P(Dependency, OneThatHasEndedAlreadyCountsAtOnce) {
  const auto first = submit("a");
  end(first, 0);
  bench.tick();
  EXPECT_EQ(bench.state(submit("b", {"ended:1"})), "running");
  bench.restart();
  EXPECT_EQ(bench.state(submit("c", {"succeeded:1", "ended:2"})), "pending");
  EXPECT_EQ(bench.state(submit("d", {"failed:1"})), "cancelled");
}

TEST_P(Dependency, AnEndIsToldThoughTheControllerDiedBeforeItToldIt) {
  const auto first = submit("a");
  const auto second = submit("b", {"succeeded:1"});
  // The end is written: the first step of a tick. Nothing after it is.
  end(first, 0);
  bench.point.steps = 0;
  bench.point.at = 1;
  EXPECT_THROW(bench.tick(), Crash);
  bench.point.at = -1;
  bench.restart();
  EXPECT_EQ(bench.state(first), "succeeded");
  EXPECT_EQ(bench.state(second), "pending");
  bench.tick();
  EXPECT_EQ(bench.state(second), "running");
  EXPECT_EQ(bench.count_events(second, "dependency_ended"), 1);
}

TEST_P(Dependency, OfTwoBothMustEnd) {
  submit("a");
  submit("b");
  const auto third = submit("c", {"succeeded:1", "ended:2"});
  EXPECT_THAT(bench.job(third).waits_for(), ElementsAre("succeeded:1", "ended:2"));
  end(1, 0);
  end(2, 93);  // in the same moment: each is a fact of its own
  bench.tick();
  EXPECT_EQ(bench.state(third), "running");
  EXPECT_EQ(bench.count_events(third, "dependency_ended"), 2);
}

TEST_P(Dependency, ACancelledJobWaitsForNothing) {
  submit("a");
  const auto second = submit("b", {"succeeded:1"});
  ASSERT_TRUE(bench.controller().cancel(second, "ada").ok());
  end(1, 0);
  bench.pass(500ms);
  EXPECT_EQ(bench.state(second), "cancelled");
  EXPECT_FALSE(bench.machine->has({second, 1}));
  EXPECT_EQ(bench.count_events(second, "dependency_ended"), 0);
}

TEST_P(Dependency, WhatIsNoDependencyIsRefusedByName) {
  for (const char* text : {"succeeded", "succeeded:", "won:1", "succeeded:0", "succeeded:1x", "ended:-1"}) {
    auto request = command_request("a");
    request.mutable_spec()->add_after(text);
    const auto refused = bench.controller().submit(request);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_THAT(refused.refusal().text, HasSubstr(std::string("after \"") + text));
  }
  auto request = command_request("a");
  request.mutable_spec()->add_after("ended:7");
  EXPECT_EQ(bench.controller().submit(request).refusal().text, "after \"ended:7\": there is no job 7");
}

}  // namespace
}  // namespace service::testing
