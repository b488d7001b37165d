// Goal: a task tells what it sees over one stream, which is opened once with the attempt's token, and it is told
// directives and the end of the server over the same stream.
#include "tests/controller/rpc/harness.h"

namespace {

using namespace rpc::testing;  // NOLINT
using grpc::StatusCode;
using muster::v1::TaskRequest;
using muster::v1::TaskResponse;

TaskRequest task(muster::v1::ProcessState state) {
  TaskRequest request;
  request.mutable_key()->set_job_id(1);
  request.mutable_key()->set_attempt(1);
  request.mutable_key()->set_rank(3);
  request.set_node("n1");
  request.set_state(state);
  request.set_answer_soon(true);
  return request;
}

class Tasks : public Rpc {
 protected:
  StatusCode end_of(const std::string& token, const TaskRequest& request) {
    Call call(token);
    return end_after(*ranks_->FollowTask(&call), request);
  }
};

TEST_F(Tasks, AreOfTheRankThatHasOpenedTheStreamAndLearnThatTheirEndIsHeard) {
  Call call(FakeController::kRankToken);
  const auto stream = ranks_->FollowTask(&call);
  TaskResponse answer;
  ASSERT_TRUE(stream->Write(task(muster::v1::PROCESS_RUNNING)));
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.requests_heard(), 1U);
  EXPECT_EQ(answer.interval_ms(), 20);
  auto again = task(muster::v1::PROCESS_RUNNING);
  again.clear_key();
  again.set_answer_soon(false);
  ASSERT_TRUE(stream->Write(again));
  auto end = task(muster::v1::PROCESS_EXITED);
  end.clear_key();
  end.set_exit_code(7);
  ASSERT_TRUE(stream->Write(end));
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.requests_heard(), 3U) << "what asked for no answer got none";
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(controller_.tasks.size(), 3U);
  EXPECT_EQ(controller_.tasks.back().key().rank(), 3U);
  EXPECT_EQ(controller_.tasks.back().exit_code(), 7);
  EXPECT_EQ(controller_.task_streams_opened, 1);
}

TEST_F(Tasks, AreRefusedWithTheReason) {
  EXPECT_EQ(end_of(FakeController::kRankToken, task(muster::v1::PROCESS_RUNNING)), StatusCode::OK);
  EXPECT_EQ(end_of("another", task(muster::v1::PROCESS_RUNNING)), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(end_of(FakeController::kRankToken, {}), StatusCode::INVALID_ARGUMENT);
  auto many = task(muster::v1::PROCESS_RUNNING);
  for (int i = 0; i < 65; ++i) many.add_signals_seen(15);
  EXPECT_EQ(end_of(FakeController::kRankToken, many), StatusCode::INVALID_ARGUMENT);
  controller_.set_rank_refusal(common::Refusal{common::Refusal::Kind::kNotFound, "no job 1"});
  EXPECT_EQ(end_of(FakeController::kRankToken, task(muster::v1::PROCESS_RUNNING)), StatusCode::NOT_FOUND);
}

TEST_F(Tasks, AreToldWhatTheControllerPushes) {
  Call call(FakeController::kRankToken);
  const auto stream = ranks_->FollowTask(&call);
  TaskResponse answer;
  ASSERT_TRUE(stream->Write(task(muster::v1::PROCESS_RUNNING)));
  ASSERT_TRUE(stream->Read(&answer));
  TaskResponse stop;
  stop.set_directive(muster::v1::DIRECTIVE_STOP);
  stop.set_stop_why("peer_failed");
  controller_.push(stop);
  ASSERT_TRUE(stream->Read(&answer)) << "without a request in between";
  EXPECT_EQ(answer.directive(), muster::v1::DIRECTIVE_STOP);
  EXPECT_EQ(answer.stop_why(), "peer_failed");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(controller_.wait_until([](const FakeController& c) { return c.task_streams_closed == 1; }));
}

TEST_F(Tasks, EndWithTheServer) {
  Call call(FakeController::kRankToken);
  expect_end_with_the_server(*ranks_->FollowTask(&call), task(muster::v1::PROCESS_RUNNING));
}

}  // namespace
