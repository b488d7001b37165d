#include <fstream>
#include <thread>

#include <gmock/gmock.h>

#include "controller/logs/log_tail.h"
#include "proto/wire/logs.h"
#include "tests/controller/rpc/harness.h"
#include "tests/temporary_folder.h"

namespace {

using namespace rpc::testing;  // NOLINT
using grpc::StatusCode;

class Logs : public Rpc {
 protected:
  Logs() {
    controller_.set_log_folder(folder_.path());
    controller_.put_running(1, 2);
    request_.set_job_id(1);
  }

  void append(int attempt, int rank, const std::string& text) {
    std::ofstream(controller_.log_path(1, static_cast<core::AttemptNumber>(attempt), static_cast<unsigned>(rank)),
                  std::ios::app | std::ios::binary)
        << text;
  }
  void start_stream() { reader_ = jobs_->Logs(&call_, request_); }
  muster::v1::LogChunk next() {
    muster::v1::LogChunk chunk;
    EXPECT_TRUE(reader_->Read(&chunk));
    EXPECT_LE(chunk.data().size(), logs::kChunkBytes);
    return chunk;
  }
  /// Reads the stream to its end, which must be OK. Returns a line "attempt/rank: data" for each chunk.
  std::string rest() {
    std::string all;
    muster::v1::LogChunk chunk;
    while (reader_->Read(&chunk)) {
      all += std::to_string(chunk.attempt()) + "/" + std::to_string(chunk.rank()) + ": " + chunk.data();
    }
    status_ = reader_->Finish();
    return all;
  }
  void end_attempt(int number, const std::string& job_state) {
    controller_.update(1, [&](muster::v1::Job& job) {
      job.mutable_attempts(number - 1)->set_state("ended");
      job.set_state(job_state);
    });
  }
  void start_attempt(int number) {
    controller_.update(1, [&](muster::v1::Job& job) {
      auto* attempt = job.add_attempts();
      attempt->set_number(static_cast<unsigned>(number));
      attempt->set_state("running");
      job.set_state("running");
    });
  }

  const test::TemporaryFolder folder_;
  muster::v1::LogsRequest request_;
  Call call_;
  std::unique_ptr<grpc::ClientReader<muster::v1::LogChunk>> reader_;
  grpc::Status status_;
};

TEST_F(Logs, SendsWhatEveryRankHasWrittenSoFar) {
  append(1, 0, "zero\nhalf");
  append(1, 1, "one\n");
  start_stream();
  EXPECT_EQ(rest(), "1/0: zero\n1/0: half1/1: one\n");
  EXPECT_TRUE(status_.ok());
}

TEST_F(Logs, SendsOneRanksLastLines) {
  for (int i = 0; i < 100'000; i += 10'000) append(1, 1, std::to_string(i) + "\n");
  request_.set_rank(1);
  request_.set_tail_lines(2);
  start_stream();
  EXPECT_EQ(rest(), "1/1: 80000\n90000\n");
}

TEST_F(Logs, SendsWhatTheSchedulerWroteOfAnAttemptThatItWasGiven) {
  append(1, 0, "of a rank\n");
  std::ofstream(folder_ / "attempt-1-slurm.log") << "one\nsrun: error\n";
  request_.set_rank(proto::kSchedulerLog);
  request_.set_tail_lines(1);
  start_stream();
  EXPECT_EQ(rest(), "");
  EXPECT_EQ(status_.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status_.error_message(), testing::HasSubstr("attempt 1 of job 1 has no Slurm log"));
  controller_.update(1, [](muster::v1::Job& job) { job.mutable_attempts(0)->set_scheduler_job("12"); });
  Call second;
  reader_ = jobs_->Logs(&second, request_);
  EXPECT_EQ(rest(), "1/4294967295: srun: error\n");
  EXPECT_TRUE(status_.ok());
}

// Goal: after a lost connection no line is missing, and no line comes twice.
TEST_F(Logs, GoesOnWhereAnEarlierStreamBrokeOff) {
  append(1, 0, "one\ntwo\n");
  append(1, 1, "uno\ndos\n");
  end_attempt(1, "waiting");
  start_attempt(2);
  append(2, 0, "later\n");
  end_attempt(2, "succeeded");
  request_.set_follow(true);
  auto* position = request_.add_from();
  position->set_attempt(1);
  position->set_rank(1);
  position->set_offset(4);
  start_stream();
  EXPECT_EQ(rest(), "1/0: one\ntwo\n1/1: dos\n2/0: later\n");
}

TEST_F(Logs, FollowingTheLastLinesSaysWhereTheyBegan) {
  append(1, 0, "one\ntwo\n");
  request_.set_follow(true);
  request_.set_tail_lines(1);
  start_stream();
  for (const unsigned rank : {0u, 1u}) {
    const auto beginning = next();
    EXPECT_EQ(beginning.data(), "");
    EXPECT_EQ(beginning.rank(), rank);
    EXPECT_EQ(beginning.next_offset(), rank == 0 ? 4u : 0u);
  }
  const auto line = next();
  EXPECT_EQ(line.data(), "two\n");
  EXPECT_EQ(line.next_offset(), 8u);

  // While the connection is lost, a rank that had no line writes more lines than the client asked for.
  append(1, 1, "uno\ndos\n");
  Call call;
  for (const auto& [rank, offset] : {std::pair{0u, 8u}, {1u, 0u}}) {
    auto* position = request_.add_from();
    position->set_attempt(1);
    position->set_rank(rank);
    position->set_offset(offset);
  }
  end_attempt(1, "succeeded");
  call_.TryCancel();
  rest();
  auto reader = jobs_->Logs(&call, request_);
  std::string all;
  for (muster::v1::LogChunk chunk; reader->Read(&chunk);) all += chunk.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(all, "uno\ndos\n");
}

TEST_F(Logs, OnlyWhatComesWhileFollowingIsDated) {
  append(1, 0, "before\n");
  request_.set_follow(true);
  start_stream();
  EXPECT_EQ(next().seen_at_ms(), 0) << "nobody knows when it was written";
  using namespace std::chrono;
  const auto now_ms = [] { return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count(); };
  // A line that is written during the first read may count as old.
  std::int64_t begin = 0;
  muster::v1::LogChunk line;
  for (int tries = 0; tries < 1000 && line.seen_at_ms() == 0; ++tries) {
    begin = now_ms();
    append(1, 0, "while following\n");
    line = next();
    EXPECT_EQ(line.data(), "while following\n");
  }
  EXPECT_GE(line.seen_at_ms(), begin);
  EXPECT_LE(line.seen_at_ms(), now_ms());
  end_attempt(1, "waiting");
  start_attempt(2);
  append(2, 0, "of the next attempt\n");
  EXPECT_GE(next().seen_at_ms(), begin);
  end_attempt(2, "succeeded");
  rest();
}

TEST_F(Logs, AsksForWhatDoesNotExistInPlainWords) {
  request_.set_attempt(7);
  start_stream();
  EXPECT_EQ(rest(), "");
  EXPECT_EQ(status_.error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(status_.error_message(), "job 1 has no attempt 7; it has 1, see muster show");

  Call call;
  muster::v1::LogsRequest request;
  request.set_job_id(1);
  request.set_rank(2);
  muster::v1::LogChunk chunk;
  auto reader = jobs_->Logs(&call, request);
  EXPECT_FALSE(reader->Read(&chunk));
  const auto status = reader->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "job 1 has no rank 2; its ranks are 0 to 1");
}

TEST_F(Logs, FollowsFromBeforeTheFirstAttemptThroughARequeueToTheEnd) {
  muster::v1::Job pending;
  pending.set_id(1);
  pending.set_state("pending");
  controller_.put(pending);
  request_.set_follow(true);
  start_stream();
  ASSERT_TRUE(streams_become(1));
  start_attempt(1);
  append(1, 0, "first\n");
  auto chunk = next();
  EXPECT_EQ(chunk.data(), "first\n");
  EXPECT_EQ(chunk.attempt(), 1u);
  append(1, 0, "unfinished");
  end_attempt(1, "waiting");
  EXPECT_EQ(next().data(), "unfinished") << "nobody will end this line";
  start_attempt(2);
  append(2, 0, "second\n");
  chunk = next();
  EXPECT_EQ(chunk.data(), "second\n");
  EXPECT_EQ(chunk.attempt(), 2u);
  append(2, 0, "last words\n");
  end_attempt(2, "succeeded");
  EXPECT_EQ(rest(), "2/0: last words\n");
  EXPECT_TRUE(status_.ok());
}

TEST_F(Logs, FollowingOneAttemptEndsWithIt) {
  request_.set_follow(true);
  request_.set_attempt(1);
  start_stream();
  append(1, 1, "one\n");
  EXPECT_EQ(next().data(), "one\n");
  end_attempt(1, "waiting");
  EXPECT_EQ(rest(), "");
  EXPECT_TRUE(status_.ok());
}

TEST_F(Logs, ATenMegabyteLineArrivesWhole) {
  const std::string line = std::string(10'000'000, 'x') + "\n";
  append(1, 0, line + "after\n");
  request_.set_rank(0);
  start_stream();
  std::string all;
  muster::v1::LogChunk chunk;
  while (reader_->Read(&chunk)) {
    ASSERT_LE(chunk.data().size(), logs::kChunkBytes);
    all += chunk.data();
  }
  EXPECT_TRUE(reader_->Finish().ok());
  EXPECT_EQ(all, line + "after\n");
}

TEST_F(Logs, WithoutFollowALogThatKeepsGrowingStillEnds) {
  append(1, 0, "begin\n");
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) append(1, 0, std::string(100'000, 'y') + "\n");
  });
  start_stream();
  EXPECT_NE(rest(), "");
  EXPECT_TRUE(status_.ok());
  stop = true;
  writer.join();
}

TEST_F(Logs, FollowersLeaveAtShutdown) {
  request_.set_follow(true);
  start_stream();
  append(1, 0, "one\n");
  EXPECT_EQ(next().data(), "one\n");
  server_->shutdown();
  EXPECT_EQ(rest(), "");
  EXPECT_EQ(status_.error_code(), StatusCode::UNAVAILABLE);
}

}  // namespace
