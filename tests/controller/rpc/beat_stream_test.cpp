// Goal: heartbeats go over one stream a rank, which is opened once with the attempt's token, and is told why it ends.
#include <functional>
#include <thread>

#include "tests/controller/rpc/harness.h"

namespace {

using namespace rpc::testing;  // NOLINT
using grpc::StatusCode;
using muster::v1::BeatResponse;
using muster::v1::HeartbeatRequest;

HeartbeatRequest beat(std::uint32_t rank, std::int64_t step) {
  HeartbeatRequest request;
  request.mutable_key()->set_job_id(1);
  request.mutable_key()->set_attempt(1);
  request.mutable_key()->set_rank(rank);
  request.set_step(step);
  return request;
}

class Beats : public Rpc {
 protected:
  StatusCode end_of(const std::string& token, const HeartbeatRequest& request) {
    Call call(token);
    return end_after(*ranks_->Beat(&call), request);
  }
};

TEST_F(Beats, AreOfTheRankThatHasOpenedTheStream) {
  Call call(FakeController::kRankToken);
  const auto stream = ranks_->Beat(&call);
  BeatResponse answer;
  for (int step = 1; step <= 100; ++step) {
    auto request = beat(3, step);
    if (step > 1) request.clear_key();
    request.set_first_metric(static_cast<std::uint64_t>(step) - 1);
    request.add_metrics()->set_step(step);
    ASSERT_TRUE(stream->Write(request));
  }
  while (answer.requests_heard() < 100) ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.metrics_durable(), 100U);
  EXPECT_EQ(answer.heartbeat_interval_ms(), 20);
  stream->WritesDone();
  while (stream->Read(&answer)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(controller_.streams_opened, 1);
  EXPECT_EQ(controller_.heartbeats[3], 100);
  EXPECT_EQ(controller_.order[3].size(), 100U);
}

TEST_F(Beats, AreRefusedWithTheReason) {
  EXPECT_EQ(end_of(FakeController::kRankToken, beat(0, 1)), StatusCode::OK);
  EXPECT_EQ(end_of("another", beat(0, 1)), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(end_of(FakeController::kRankToken, {}), StatusCode::INVALID_ARGUMENT);
  auto large = beat(0, 1);
  for (int i = 0; i < 513; ++i) large.add_metrics()->set_step(i);
  EXPECT_EQ(end_of(FakeController::kRankToken, large), StatusCode::INVALID_ARGUMENT);
  controller_.set_rank_refusal(common::Refusal{common::Refusal::Kind::kNotFound, "no job 1"});
  EXPECT_EQ(end_of(FakeController::kRankToken, beat(0, 1)), StatusCode::NOT_FOUND);
}

TEST_F(Beats, OfOneRankComeOnItsNewestStream) {
  Call first(FakeController::kRankToken), second(FakeController::kRankToken), other(FakeController::kRankToken);
  const auto older = ranks_->Beat(&first), newer = ranks_->Beat(&second), neighbour = ranks_->Beat(&other);
  BeatResponse answer;
  ASSERT_TRUE(older->Write(beat(0, 1)) && older->Read(&answer));
  ASSERT_TRUE(neighbour->Write(beat(1, 1)) && neighbour->Read(&answer));
  ASSERT_TRUE(newer->Write(beat(0, 2)) && newer->Read(&answer));
  while (older->Read(&answer)) {
  }
  // CANCELLED: gRPC had not said yet that the answer is written when the newer stream came.
  const auto end = older->Finish().error_code();
  EXPECT_TRUE(end == StatusCode::ABORTED || end == StatusCode::CANCELLED) << "the newer one replaces it: " << end;
  ASSERT_TRUE(newer->Write(beat(0, 3)) && newer->Read(&answer));
  ASSERT_TRUE(neighbour->Write(beat(1, 2)) && neighbour->Read(&answer));
  EXPECT_EQ(end_of("another", beat(0, 4)), StatusCode::UNAUTHENTICATED);
  ASSERT_TRUE(newer->Write(beat(0, 4)) && newer->Read(&answer)) << "a stranger replaces nobody";
}

// Goal: each field that a rank fills is bounded by its name. Method: one field too long at a time.
TEST_F(Beats, OfWhichOneFieldIsTooLongAreRefusedByItsName) {
  const auto refused = [&](const std::function<void(HeartbeatRequest&)>& fill, const std::string& field) {
    auto request = beat(0, 1);
    fill(request);
    Call call(FakeController::kRankToken);
    const auto stream = ranks_->Beat(&call);
    stream->Write(request);
    BeatResponse answer;
    while (stream->Read(&answer)) {
    }
    const auto status = stream->Finish();
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_TRUE(status.error_message().starts_with(field + ": ")) << status.error_message();
  };
  const std::string name(513, 'n'), text(4097, 't'), trace((64 << 10) + 1, 's');
  refused([&](auto& r) { r.set_section_name(name); }, "section_name");
  refused([&](auto& r) { r.set_leaving_reason(text); }, "leaving_reason");
  refused([&](auto& r) { r.add_checkpoints()->set_path(text); }, "checkpoints.path");
  refused([&](auto& r) { r.add_series()->set_name(name); }, "series.name");
  refused([&](auto& r) { r.add_series()->set_unit(name); }, "series.unit");
  refused([&](auto& r) { r.add_metrics()->add_values()->set_series(text); }, "metrics.values.series");
  refused([&](auto& r) { r.mutable_program()->set_status(text); }, "program.status");
  refused([&](auto& r) { r.mutable_program()->set_config(trace); }, "program.config");
  refused([&](auto& r) { r.mutable_program()->set_first_bad_line(text); }, "program.first_bad_line");
  refused([&](auto& r) { r.mutable_program()->set_source_trouble(text); }, "program.source_trouble");
  refused([&](auto& r) { r.mutable_program()->mutable_error()->set_type(name); }, "program.error.type");
  refused([&](auto& r) { r.mutable_program()->mutable_error()->set_message(text); }, "program.error.message");
  refused([&](auto& r) { r.mutable_program()->mutable_error()->set_trace(trace); }, "program.error.trace");
  refused([&](auto& r) { r.mutable_trace()->set_problem(text); }, "trace.problem");
  refused(
      [](auto& r) {
        for (int step = 0; step <= 10'000; ++step) r.mutable_trace()->add_steps_written(step);
      },
      "trace.steps_written");
  Call huge(FakeController::kRankToken);
  auto request = beat(0, 1);
  request.set_section_name(std::string(5 << 20, 'x'));
  const auto stream = ranks_->Beat(&huge);
  stream->Write(request);
  BeatResponse answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED) << "not even read";
}

TEST_F(Beats, EndWithTheServer) {
  Call call(FakeController::kRankToken);
  expect_end_with_the_server(*ranks_->Beat(&call), beat(0, 1));
}

TEST_F(Beats, OfARankThatIsGoneEndWithItsConnection) {
  {
    Call call(FakeController::kRankToken);
    const auto stream = ranks_->Beat(&call);
    BeatResponse answer;
    ASSERT_TRUE(stream->Write(beat(0, 1)));
    ASSERT_TRUE(stream->Read(&answer));
    call.TryCancel();
    while (stream->Read(&answer)) {
    }
    EXPECT_EQ(stream->Finish().error_code(), StatusCode::CANCELLED);
  }
  EXPECT_TRUE(controller_.wait_until([](const FakeController& c) { return c.streams_closed == 1; }));
}

// Goal: how late heartbeats are read is measured on their own way.
// Method: a real server, and a controller that asks.
class Probed : public ::testing::Test {
 protected:
  struct Asking : FakeController {
    common::Reading* reading() override { return &reading_; }
    common::RealClock clock_;
    common::Reading reading_{clock_};
  };
  Asking controller_;
};

TEST_F(Probed, AWordComesBackThroughTheServer) {
  const auto server = rpc::serve(controller_, "127.0.0.1:0");
  for (int i = 0; i < 20; ++i) {
    const auto asked = controller_.clock_.monotonic();
    controller_.reading_.ask();
    const auto until = Clock::now() + 20s;
    // The word is read: everything until the moment of asking is.
    auto arrived = [&] {
      controller_.reading_.ask();
      return controller_.reading_.asked_ago() && controller_.reading_.read_until() >= asked &&
             controller_.reading_.lag() < 10s &&
             controller_.clock_.monotonic() - controller_.reading_.read_until() < 5s;
    };
    while (!arrived() && Clock::now() < until) std::this_thread::sleep_for(1ms);
    ASSERT_LT(Clock::now(), until) << "word " << i;
    const auto before = controller_.clock_.monotonic();
    std::this_thread::sleep_for(3ms);
    ASSERT_LE(controller_.reading_.read_until(), before)
        << "word " << i << ": the way is broken, so all counts as read";
  }
  server->shutdown();
  EXPECT_EQ(controller_.streams_opened, 0) << "the controller sees no rank";
  EXPECT_LE(controller_.clock_.monotonic() - controller_.reading_.read_until(), 5s) << "and nothing is held up by it";
}

}  // namespace
