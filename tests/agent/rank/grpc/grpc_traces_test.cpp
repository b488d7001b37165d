// Goal: a rank hears what it is asked to record, and says how that stands, once a stream and after each change.
// Method: the reporter of a rank against a real server with a fake controller behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/rank/grpc/grpc_reporter.h"
#include "controller/rpc/rpc_server.h"
#include "tests/claimed_port.h"
#include "tests/controller/rpc/fake_controller.h"

namespace {

using rpc::testing::FakeController;

class Traces : public testing::Test {
 protected:
  std::unique_ptr<agent::rank::Reporter> reporter(agent::rank::GrpcReporterOptions options = {}) const {
    agent::rank::RankEnvironment environment;
    environment.controller = agent::rank::Endpoint{"127.0.0.1", port_.number()};
    environment.token = FakeController::kRankToken;
    environment.job_id = "1";
    environment.attempt = 1;
    return agent::rank::make_grpc_reporter(environment, options);
  }
  /// Waits for `more` heartbeats.
  bool heard(int more) {
    int seen = 0;
    controller_.wait_until([&](const FakeController& c) {
      seen = count(c);
      return true;
    });
    return controller_.wait_until([&](const FakeController& c) { return count(c) >= seen + more; });
  }
  static int count(const FakeController& c) {
    const auto found = c.heartbeats.find(0);
    return found == c.heartbeats.end() ? 0 : found->second;
  }
  muster::v1::HeartbeatRequest newest() {
    muster::v1::HeartbeatRequest request;
    controller_.wait_until([&](const FakeController& c) {
      request = c.last_heartbeat.at(0);
      return true;
    });
    return request;
  }
  void restart_server() { server_ = rpc::serve(controller_, port_.on("127.0.0.1")); }

  FakeController controller_;
  test::ClaimedPort port_;  // servers come back to it
  std::unique_ptr<rpc::Server> server_ = rpc::serve(controller_, port_.on("127.0.0.1"));
};

TEST_F(Traces, HearsOfATraceAndTellsHowItStandsOnceAStream) {
  const auto rank = reporter();
  const auto told = [&](std::uint64_t number) {
    return controller_.wait_until([&](const FakeController& c) {
      const auto found = c.last_trace.find(0);
      return found != c.last_trace.end() && found->second.number() == number;
    });
  };
  ASSERT_TRUE(told(0)) << "its first request says that it can record";
  EXPECT_EQ(rank->trace_requested(), std::nullopt);
  ASSERT_TRUE(heard(3));
  EXPECT_FALSE(newest().has_trace()) << "nothing of it is new";
  muster::v1::TraceWish wish;
  wish.set_number((std::uint64_t{1} << 53) - 1);
  wish.set_first_step(12);
  wish.set_steps(3);
  controller_.set_trace_wish(wish);
  ASSERT_TRUE(heard(2));
  const agent::rank::TraceWish expected{wish.number(), 12, 3};
  EXPECT_EQ(rank->trace_requested(), expected);
  agent::rank::TraceReport report{.number = wish.number(), .first = 12, .steps = 3};
  report.steps_written = {12, 13};
  report.problem = "no room \xff";
  report.over = true;
  rank->trace(report);
  ASSERT_TRUE(told(wish.number()));
  server_->shutdown();
  controller_.last_trace.clear();
  controller_.set_trace_wish(std::nullopt);
  restart_server();
  ASSERT_TRUE(told(wish.number())) << "a controller that was started anew knows nothing";
  controller_.wait_until([&](const FakeController& c) {
    const auto& trace = c.last_trace.at(0);
    EXPECT_EQ(trace.first_step(), 12);
    EXPECT_EQ(trace.steps(), 3U);
    EXPECT_EQ(trace.steps_written_size(), 2);
    EXPECT_THAT(trace.problem(), testing::StartsWith("no room "));
    EXPECT_TRUE(trace.over());
    return true;
  });
  ASSERT_TRUE(heard(2));
  EXPECT_EQ(rank->trace_requested(), expected) << "it is recorded though the controller has forgotten it";
}

TEST_F(Traces, OfAnotherProcessSaysNothingOfTraces) {
  const auto agent = reporter({.for_another = true});
  ASSERT_TRUE(heard(3));
  controller_.wait_until([](const FakeController& c) {
    EXPECT_TRUE(c.last_trace.empty());
    return true;
  });
}

}  // namespace
