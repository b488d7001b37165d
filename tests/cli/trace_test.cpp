// Goal: `muster trace` prints the files that ranks have recorded, or why they have not.
// Method: the real program with a real gRPC server whose answers are scripted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/fake_controller.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

muster::v1::TraceView trace_of(const std::string& state, std::int64_t first) {
  muster::v1::TraceView view;
  view.set_job_id(7);
  view.set_attempt(1);
  view.set_state(state);
  view.set_steps(2);
  view.set_first_step(first);
  view.set_folder("/data/trace");
  for (std::uint32_t rank = 0; rank < 2; ++rank) view.add_ranks()->set_rank(rank);
  return view;
}

muster::v1::TraceView trace_done() {
  auto view = trace_of("over", 41);
  for (auto& rank : *view.mutable_ranks()) {
    rank.add_steps_written(41);
    rank.add_steps_written(42);
  }
  return view;
}

TEST(TraceCommand, PrintsTheFilesOfAllRanks) {
  FakeController fake;
  fake.with([](FakeState& s) { s.traces = {trace_of("asked", 0), trace_of("recording", 41), trace_done()}; });
  const auto done = fake.muster({"trace", "7", "--steps", "2", "--at", "41"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out,
            "/data/trace/step-41.rank0.json\n/data/trace/step-42.rank0.json\n"
            "/data/trace/step-41.rank1.json\n/data/trace/step-42.rank1.json\n");
  EXPECT_EQ(done.err,
            "muster: job 7: its 2 ranks are asked to record 2 steps\n"
            "muster: job 7: its 2 ranks record steps 41 to 42\n"
            "muster: open them in https://ui.perfetto.dev or chrome://tracing\n");
  fake.with([](FakeState& s) {
    ASSERT_EQ(s.trace_requests.size(), 1U);
    const auto& request = s.trace_requests.front();
    EXPECT_EQ(request.job_id(), 7);
    EXPECT_EQ(request.steps(), 2U);
    EXPECT_EQ(request.first_step(), 41);
    EXPECT_TRUE(request.follow());
    EXPECT_FALSE(request.user().empty());
    EXPECT_GT(request.number(), 0U);
    EXPECT_LT(request.number(), std::uint64_t{1} << 53);
  });
}

TEST(TraceCommand, PrintsOneObjectAsJson) {
  FakeController fake;
  fake.with([](FakeState& s) { s.traces = {trace_done()}; });
  const auto done = fake.muster({"trace", "7", "--json"});
  EXPECT_EQ(done.exit, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json.at("state"), "over");
  EXPECT_EQ(json.at("first_step"), 41);
  EXPECT_EQ(json.at("files").size(), 4U);
  EXPECT_EQ(json.at("files")[3], "/data/trace/step-42.rank1.json");
}

// The controller was restarted in between, and knows nothing of the request.
TEST(TraceCommand, AsksWithTheSameNumberAfterALostConnection) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.traces = {trace_of("asked", 0), trace_done()};
    s.break_streams_after = 1;
  });
  const auto done = fake.muster({"trace", "7"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("lost contact"), HasSubstr("the controller is back")));
  fake.with([](FakeState& s) {
    ASSERT_EQ(s.trace_requests.size(), 2U);
    EXPECT_EQ(s.trace_requests[0].number(), s.trace_requests[1].number());
  });
  EXPECT_EQ(fake.muster({"trace", "7"}).exit, 0);
  fake.with([](FakeState& s) { EXPECT_NE(s.trace_requests[1].number(), s.trace_requests[2].number()); });
}

TEST(TraceCommand, SaysWhatEachRankCouldNotRecord) {
  FakeController fake;
  fake.with([](FakeState& s) {
    auto view = trace_done();
    view.mutable_ranks(1)->clear_steps_written();
    view.mutable_ranks(1)->set_problem("no trace in /data/trace/step-41.rank1.json: No space left on device");
    s.traces = {view};
  });
  const auto some = fake.muster({"trace", "7"});
  EXPECT_EQ(some.exit, 1);
  EXPECT_EQ(some.out, "/data/trace/step-41.rank0.json\n/data/trace/step-42.rank0.json\n");
  EXPECT_THAT(some.err, HasSubstr("muster trace: job 7, rank 1: no trace in /data/trace/step-41.rank1.json: No space"));
  fake.with([](FakeState& s) {
    auto view = trace_of("over", 0);
    view.set_problem("attempt 1 has ended before its ranks had recorded all steps (rank 1 exited with 1)");
    for (auto& rank : *view.mutable_ranks()) rank.set_problem("the training ends after step 40");
    s.traces = {view};
  });
  const auto none = fake.muster({"trace", "7"});
  EXPECT_EQ(none.exit, 1);
  EXPECT_THAT(none.out, IsEmpty());
  EXPECT_EQ(none.err,
            "muster trace: job 7: attempt 1 has ended before its ranks had recorded all steps (rank 1 exited with 1)\n"
            "muster trace: job 7, all ranks: the training ends after step 40\n");
}

TEST(TraceCommand, WaitsNoLongerThanItIsTold) {
  FakeController fake;
  fake.with([](FakeState& s) { s.traces = {trace_of("recording", 41)}; });
  const auto timed_out = fake.muster({"trace", "7", "--timeout", "300ms"});
  EXPECT_EQ(timed_out.exit, 124) << timed_out.err;
  EXPECT_THAT(timed_out.out, IsEmpty());
  EXPECT_THAT(timed_out.err,
              HasSubstr("its ranks record all the same; the files will be /data/trace/step-N.rankR.json\n"));
  const auto asked = fake.muster({"trace", "7", "--no-wait"});
  EXPECT_EQ(asked.exit, 0) << asked.err;
  EXPECT_THAT(asked.out, IsEmpty());
  EXPECT_EQ(asked.err,
            "muster: job 7: its 2 ranks record steps 41 to 42; the files will be /data/trace/step-N.rankR.json\n");
  fake.with([](FakeState& s) { EXPECT_FALSE(s.trace_requests.back().follow()); });
}

TEST(TraceCommand, TellsARefusalAndAWrongUse) {
  FakeController fake;
  fake.with([](FakeState& s) { s.trace_refusal = "job 7 is pending, so no rank can record a step"; });
  const auto refused = fake.muster({"trace", "7"});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_EQ(refused.err, "muster trace: job 7 is pending, so no rank can record a step\n");
  EXPECT_EQ(fake.muster({"trace"}).exit, 2);
  EXPECT_THAT(fake.muster({"trace", "7", "--steps", "1001"}).err, HasSubstr("1000"));
  EXPECT_EQ(fake.muster({"trace", "7", "--at", "0"}).exit, 2);
  EXPECT_THAT(fake.muster({"trace", "7", "--timeout", "soon"}).err, HasSubstr("want a duration such as 90s"));
}

TEST(TraceCommand, IsCompletedWithJobsThatRun) {
  FakeController fake;
  fake.with([](FakeState& s) { s.jobs = {sample_job(1, "pending"), sample_job(2, "running")}; });
  const auto words = fake.muster({"__complete", "jobs", "trace"});
  EXPECT_THAT(words.out, AllOf(HasSubstr("2\t"), Not(HasSubstr("1\t"))));
}

}  // namespace
}  // namespace test
