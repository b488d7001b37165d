// Goal: an admin's order lets no attempt start, leaves alone what runs, and outlasts a restart.
// Method: a whole controller without threads, on both stores.
#include "controller/service/draining.h"

#include <gmock/gmock.h>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::HasSubstr;

class Drained : public ::testing::TestWithParam<StoreKind> {
 protected:
  muster::v1::DrainView drain(const std::string& reason, const std::string& user = "ann") {
    muster::v1::DrainRequest request;
    request.set_reason(reason);
    request.set_user(user);
    auto done = bench.controller().drain(request);
    EXPECT_TRUE(done.ok()) << done.refusal().text;
    return done.ok() ? done.value() : muster::v1::DrainView();
  }
  bool resume() {
    muster::v1::ResumeRequest request;
    request.set_user("bob");
    auto done = bench.controller().resume(request);
    EXPECT_TRUE(done.ok()) << done.refusal().text;
    bench.pass(1s);
    return done.ok() && done.value().changed();
  }
  Bench bench{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Stores, Drained, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Drained, NoAttemptStartsAndWhatRunsGoesOn) {
  const auto running = bench.submit(command_request("a"));
  bench.heartbeats({running, 1}, 1, 1);
  const auto view = drain("new driver");
  EXPECT_TRUE(view.drained());
  EXPECT_TRUE(view.changed());
  EXPECT_EQ(view.attempts_running(), 1U);
  EXPECT_EQ(view.attempts_queued(), 0U);
  const auto waiting = bench.submit(command_request("b"));
  bench.pass(5s, [&] { bench.heartbeats({running, 1}, 1, 2); });
  EXPECT_EQ(bench.state(running), "running");
  EXPECT_FALSE(bench.machine->has({waiting, 1}));
  const auto why = bench.why(waiting);
  EXPECT_THAT(why.reason(), HasSubstr("musterd starts no attempt: it is drained by ann since "));
  EXPECT_THAT(why.reason(), HasSubstr(": new driver"));
  EXPECT_EQ(why.action(), "It starts when an admin says: muster admin resume");
  const auto status = bench.controller().status();
  EXPECT_EQ(status.drain().reason(), "new driver");
  ASSERT_EQ(status.notes_size(), 1);
  EXPECT_THAT(status.notes(0), HasSubstr("no attempt starts: drained by ann"));
  EXPECT_TRUE(resume());
  EXPECT_TRUE(bench.machine->has({waiting, 1}));
  EXPECT_EQ(bench.controller().status().notes_size(), 0);
}

TEST_P(Drained, TheNextAttemptOfAJobWaitsToo) {
  const auto id = bench.submit(command_request("a"));
  bench.heartbeats({id, 1}, 1, 1);
  drain("");
  ASSERT_TRUE(bench.controller().requeue(id, "ann").ok());
  bench.tick();
  bench.executor().end_all({id, 1}, {99, 0});
  bench.pass(10s);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "requeued");
  EXPECT_FALSE(bench.machine->has({id, 2}));
  EXPECT_TRUE(resume());
  EXPECT_TRUE(bench.machine->has({id, 2}));
}

TEST_P(Drained, TheOrderOutlastsARestart) {
  const auto since = drain("new driver").since();
  bench.clock.advance(10s);
  bench.restart();
  const auto id = bench.submit(command_request("a"));
  bench.pass(2s);
  EXPECT_FALSE(bench.machine->has({id, 1}));
  const auto again = drain("another reason", "bob");
  EXPECT_TRUE(again.changed());
  EXPECT_EQ(again.reason(), "another reason");
  EXPECT_EQ(again.since(), since) << "it has lasted since then";
  EXPECT_FALSE(drain("another reason", "bob").changed());
  EXPECT_TRUE(resume());
  EXPECT_FALSE(resume());
  bench.restart();
  EXPECT_TRUE(bench.machine->has({id, 1}));
  EXPECT_FALSE(bench.controller().status().drain().drained());
  const auto audit = bench.controller().list_audit({});
  ASSERT_EQ(audit.entries_size(), 3) << "what changed nothing is not there";
  EXPECT_EQ(audit.entries(0).action(), "resume");
  EXPECT_EQ(audit.entries(0).user(), "bob");
  EXPECT_EQ(audit.entries(0).after(), "");
  EXPECT_EQ(audit.entries(0).before(), audit.entries(1).after());
  EXPECT_EQ(audit.entries(2).before(), "");
  EXPECT_THAT(audit.entries(2).after(), HasSubstr(R"("reason":"new driver")"));
  EXPECT_EQ(audit.entries(2).partition(), "");
}

TEST_P(Drained, ACrashBeforeOrAfterTheStoreTookItLeavesNoHalf) {
  for (int at = 0; at < 2; ++at) {
    bench.point.at = bench.point.steps + at;
    try {
      muster::v1::DrainRequest request;
      request.set_user("ann");
      static_cast<void>(bench.controller().drain(request));
    } catch (const Crash&) {
    }
    bench.point.at = -1;
    bench.restart();
    EXPECT_EQ(bench.controller().status().drain().drained(), at == 1);
  }
}

TEST_P(Drained, ALongReasonIsRefused) {
  muster::v1::DrainRequest request;
  request.set_reason(std::string(Draining::kMostReason + 1, 'x'));
  const auto done = bench.controller().drain(request);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.refusal().text, "reason: it has 201 bytes; want at most 200");
  EXPECT_FALSE(bench.controller().status().drain().drained());
}

}  // namespace
}  // namespace service::testing
