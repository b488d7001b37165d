// Goal: `muster stacks` prints where each rank stands, and asks only where somebody can answer.
// Method: the real program with a real gRPC server whose answers are scripted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/fake_controller.h"

namespace test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

muster::v1::StacksView stacks_view(const std::string& why) {
  muster::v1::StacksView view;
  view.set_job_id(7);
  view.set_attempt(1);
  auto& set = *view.add_sets();
  set.set_number(99);
  set.set_at_ms(1'795'474'243'500);
  set.set_why(why);
  set.set_given(1);
  set.set_ranks(2);
  set.set_over(true);
  *view.mutable_shown() = set;
  view.set_summary("rank 0 stands at load (data.py:4)");
  return view;
}

std::vector<muster::v1::StacksView> stacks_answer(const std::string& why) {
  muster::v1::StacksView ranks;
  ranks.add_ranks()->set_text("== process 1 (python3) == frames\n\x1b]0;title\x07load\n");
  ranks.add_ranks()->set_rank(1);
  ranks.mutable_ranks(1)->set_problem("the rank has ended");
  return {stacks_view(why), ranks};
}

void set_attempt_state(FakeState& state, const std::string& word) {
  auto job = sample_job(7, "running");
  job.clear_attempts();
  job.add_attempts()->set_number(1);
  job.mutable_attempts(0)->set_state(word);
  state.jobs = {job};
}

TEST(StacksCommand, AsksTheRanksOfAJobThatRuns) {
  FakeController fake;
  fake.with([](FakeState& s) {
    set_attempt_state(s, "running");
    s.stacks = stacks_answer("asked");
  });
  const auto done = fake.muster({"stacks", "7"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out, "--- rank 0 ---\n== process 1 (python3) == frames\nload\n") << "nothing acts on a terminal";
  EXPECT_THAT(done.err, HasSubstr("muster: job 7: its ranks are asked for their stacks\n"));
  EXPECT_THAT(done.err, HasSubstr("stacks of 1 of 2 ranks, taken at 2026-11-23 22:50:43 UTC"));
  EXPECT_THAT(done.err, HasSubstr("muster: rank 0 stands at load (data.py:4)\n"));
  EXPECT_THAT(done.err, HasSubstr("muster stacks: rank 1 gave none: the rank has ended\n"));
  fake.with([](FakeState& s) {
    ASSERT_EQ(s.stacks_requests.size(), 1U);
    EXPECT_TRUE(s.stacks_requests[0].ask());
    EXPECT_FALSE(s.stacks_requests[0].user().empty());
  });
}

TEST(StacksCommand, ShowsWhatWasKeptOfAnAttemptThatHasEnded) {
  FakeController fake;
  fake.with([](FakeState& s) {
    set_attempt_state(s, "ended");
    s.stacks = stacks_answer("before_end");
    s.stacks[0].add_sets()->set_number(50);
    s.stacks[0].mutable_sets(1)->set_why("suspected");
  });
  const auto done = fake.muster({"stacks", "7"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr(", when it was about to end\n"));
  EXPECT_THAT(done.err, HasSubstr(", when it was suspected: muster stacks 7 --attempt 1 --set 50\n"));
  fake.with([](FakeState& s) { EXPECT_FALSE(s.stacks_requests.at(0).ask()); });
}

TEST(StacksCommand, ASetOfOldIsAskedForByItsNumber) {
  FakeController fake;
  fake.with([](FakeState& s) {
    set_attempt_state(s, "running");
    s.stacks = stacks_answer("asked");
  });
  EXPECT_EQ(fake.muster({"stacks", "7", "--attempt", "1", "--set", "99"}).exit, 0);
  EXPECT_EQ(fake.muster({"stacks", "7", "--kept"}).exit, 0);
  fake.with([](FakeState& s) {
    EXPECT_EQ(s.stacks_requests.at(0).number(), 99U);
    EXPECT_EQ(s.stacks_requests.at(0).attempt(), 1U);
    for (const auto& request : s.stacks_requests) EXPECT_FALSE(request.ask());
  });
}

TEST(StacksCommand, PrintsOneObjectAsJson) {
  FakeController fake;
  fake.with([](FakeState& s) { s.stacks = stacks_answer("asked"); });
  const auto done = fake.muster({"stacks", "7", "--kept", "--json"});
  EXPECT_EQ(done.exit, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json.at("summary"), "rank 0 stands at load (data.py:4)");
  EXPECT_EQ(json.at("ranks").size(), 2U);
  EXPECT_EQ(json.at("shown").at("number"), 99);
}

TEST(StacksCommand, OneRankAlone) {
  FakeController fake;
  fake.with([](FakeState& s) { s.stacks = stacks_answer("asked"); });
  const auto done = fake.muster({"stacks", "7", "--kept", "--rank", "1"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.out, IsEmpty());
  EXPECT_THAT(done.err, HasSubstr("rank 1 gave none"));
  const auto none = fake.muster({"stacks", "7", "--kept", "--rank", "2"});
  EXPECT_EQ(none.exit, 3);
  EXPECT_THAT(none.err, HasSubstr("job 7 has no rank 2; it has 2 ranks"));
}

TEST(StacksCommand, WithoutAnyThatAreKeptItSaysWhenTheyAreTaken) {
  FakeController fake;
  fake.with([](FakeState& s) {
    muster::v1::StacksView none;
    none.set_job_id(7);
    none.set_attempt(1);
    s.stacks = {none};
  });
  const auto done = fake.muster({"stacks", "7", "--kept"});
  EXPECT_EQ(done.exit, 1);
  EXPECT_THAT(done.err, HasSubstr("no stacks are kept of attempt 1 of job 7; they are taken while it runs"));
}

TEST(StacksCommand, SaysWhyNobodyCanBeAsked) {
  FakeController fake;
  fake.with([](FakeState& s) {
    set_attempt_state(s, "queued");
    s.stacks_refusal = "job 7 is pending: it has no attempt yet";
  });
  const auto done = fake.muster({"stacks", "7"});
  EXPECT_EQ(done.exit, 2);
  EXPECT_THAT(done.err, HasSubstr("job 7 is pending: it has no attempt yet"));
}

}  // namespace
}  // namespace test
