// Goal: stacks are asked for when an attempt is suspected, before it ends by a hang or by silence, and by people; an
// end waits for them a few seconds at most, and a task is heard by its token alone. Method: the real controller without
// threads; ranks, tasks and clock of our own, files in real folders.
#include <gmock/gmock.h>

#include <fstream>

#include "agent/protocol/files.h"
#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string text_at(const std::string& function) {
  return agent::protocol::section_head(41, "python3", agent::protocol::kByFaulthandler) +
         "Current thread 0x1 (most recent call first):\n  File \"t.py\", line 4 in " + function + "\n";
}

class StackStory : public ::testing::Test {
 protected:
  StackStory() { bench.machine->gives_stacks = true; }
  /// Two ranks that have made a hundred steps.
  void train(const std::string& request = "a", core::Millis hung_after = 20s) {
    auto wanted = recipe_request(request);
    wanted.mutable_spec()->mutable_liveness()->set_hung_after_ms(hung_after.count());
    key = {bench.submit(wanted), 1};
    for (core::Step step = 1; step <= 100; ++step) {
      bench.pass(100ms, [&] { bench.heartbeats(key, 2, step); });
    }
  }
  void stand(core::Millis time, const std::function<void()>& each = {}) {
    for (core::Millis gone{0}; gone < time; gone += 100ms) {
      bench.clock.advance(100ms);
      for (core::RankNumber rank = 0; rank < heard; ++rank) bench.heartbeat(key, rank, newest);
      if (each) each();
      bench.tick();
    }
  }
  /// Until stacks are asked for that often.
  void stand_until_asked(std::size_t times) {
    for (int i = 0; asked().size() < times; ++i) {
      ASSERT_LT(i, 1200);
      stand(100ms);
    }
  }
  std::string cause() { return bench.attempt(key.job, 1).cause(); }
  std::vector<std::uint64_t> asked() {
    std::lock_guard lock(bench.machine->mutex);
    std::vector<std::uint64_t> numbers;
    for (const auto& [attempt, number] : bench.machine->stacks_asked) numbers.push_back(number);
    return numbers;
  }
  common::Outcome<muster::v1::KeepStackResponse> give(core::RankNumber rank, std::uint64_t number,
                                                      const std::string& text) {
    muster::v1::KeepStackRequest request;
    *request.mutable_key() = Bench::beat(key, rank).key();
    request.set_number(number);
    request.set_text(text);
    return bench.controller().keep_stack(request, bench.token(key));
  }
  muster::v1::StacksView view(bool ask = false, std::uint64_t number = 0) {
    muster::v1::StacksRequest request;
    request.set_job_id(key.job);
    request.set_user("ann");
    request.set_ask(ask);
    request.set_number(number);
    const auto outcome = bench.controller().stacks(request);
    EXPECT_TRUE(outcome.ok()) << outcome.refusal().text;
    return outcome.ok() ? outcome.value() : muster::v1::StacksView();
  }
  std::vector<std::string> reasons() {
    std::vector<std::string> all;
    const auto now = view();
    for (const auto& set : now.sets()) all.push_back(set.why());
    return all;
  }

  Bench bench;
  core::AttemptKey key;
  core::Step newest = 100;
  core::RankNumber heard = 2;  // ranks below it
};

TEST_F(StackStory, ASuspicionAsksOnceAndTheEndOnceMore) {
  train();
  stand(11s);
  ASSERT_EQ(bench.job(key.job).status(), "running, suspected");
  ASSERT_THAT(asked(), SizeIs(1));
  EXPECT_THAT(bench.why(key.job).action(), HasSubstr("muster stacks " + std::to_string(key.job)));
  EXPECT_TRUE(give(0, asked()[0], text_at("waits")).ok());
  EXPECT_TRUE(give(1, asked()[0], text_at("loads")).ok());
  stand(1s);
  EXPECT_EQ(view().summary(), "rank 1 stands at loads (t.py:4); rank 0 stands at waits (t.py:4)");
  // The end waits for what it asks for, and no longer.
  stand(12s, [&] {
    if (asked().size() < 2) return;
    for (core::RankNumber rank = 0; rank < 2; ++rank) EXPECT_TRUE(give(rank, asked()[1], text_at("waits")).ok());
  });
  EXPECT_EQ(bench.attempt(key.job, 1).cause(), "rank_hung");
  EXPECT_THAT(reasons(), ElementsAre("suspected", "before_end"));
  EXPECT_EQ(view().summary(), "all 2 ranks stand at waits (t.py:4)");
}

TEST_F(StackStory, AnEndWaitsThreeSecondsAtMost) {
  train();
  const auto asks_before_end = [&] { return asked().size() >= 2; };
  while (!asks_before_end()) stand(100ms);
  stand(2s + 800ms);
  EXPECT_EQ(bench.attempt(key.job, 1).cause(), "");
  stand(400ms);
  EXPECT_EQ(bench.attempt(key.job, 1).cause(), "rank_hung");
}

TEST_F(StackStory, WhereNobodyCanBeAskedAnEndWaitsForNothing) {
  bench.machine->gives_stacks = false;
  train();
  stand(20s + 500ms);
  EXPECT_EQ(bench.attempt(key.job, 1).cause(), "rank_hung");
  EXPECT_THAT(reasons(), IsEmpty());
}

TEST_F(StackStory, ARankThatGoesOnWhileItsEndWaitsIsNotEnded) {
  train();
  stand_until_asked(2);
  stand(2s);
  newest = 101;
  stand(5s);
  EXPECT_EQ(cause(), "");
  EXPECT_EQ(bench.job(key.job).status(), "running");
  EXPECT_EQ(bench.count_events(key.job, "suspicion_over"), 1);
  stand(14s);
  EXPECT_EQ(cause(), "") << "its time begins anew, and so does the wait for stacks";
  stand(5s);
  EXPECT_EQ(cause(), "rank_hung");
  EXPECT_THAT(asked(), SizeIs(3)) << "a minute has not passed since the suspicion before";
}

TEST_F(StackStory, AnEndIsCalledOffByADeafMomentWhileItWaits) {
  train();
  stand_until_asked(2);
  bench.clock.advance(5s);
  bench.tick();
  stand(15s);
  EXPECT_EQ(cause(), "");
  stand(10s);
  EXPECT_EQ(cause(), "rank_hung");
}

// The limits are learned here: what the user has set holds whatever comes out.
TEST_F(StackStory, AnEndIsCalledOffByOutputWhileItWaits) {
  train("a", 0s);
  stand_until_asked(2);
  stand(1s);
  const auto log = bench.folder() / "jobs" / std::to_string(key.job) / "attempt-1" / "logs" / "rank-0.log";
  std::filesystem::create_directories(log.parent_path());
  std::ofstream(log, std::ios::app) << "10 %\n";
  stand(55s);
  EXPECT_EQ(cause(), "");
  EXPECT_EQ(bench.job(key.job).status(), "running, suspected") << "it stands still, and is asked about";
  stand(10s);
  EXPECT_EQ(cause(), "rank_hung");
}

TEST_F(StackStory, AHangWithLearnedLimitsIsSuspectedLookedAtAndEnded) {
  train("a", 0s);
  stand(10s + 500ms);
  EXPECT_EQ(bench.job(key.job).status(), "running, suspected") << "steps of 100 ms have ten seconds";
  EXPECT_THAT(asked(), SizeIs(1));
  stand(49s);
  EXPECT_THAT(asked(), SizeIs(1));
  EXPECT_EQ(cause(), "");
  stand(15s);
  EXPECT_EQ(cause(), "rank_hung") << "a minute without output, and three seconds for the stacks";
  EXPECT_THAT(reasons(), ElementsAre("suspected", "before_end"));
  EXPECT_THAT(bench.attempt(key.job, 1).reason(), HasSubstr("learned from"));
}

TEST_F(StackStory, ASilentRankAndTheOthersAreAskedBeforeTheEnd) {
  train();
  bench.executor().freeze(key, 1);
  heard = 1;
  stand(2s + 400ms);
  EXPECT_THAT(asked(), IsEmpty());
  stand_until_asked(1);
  stand(2s + 800ms);
  EXPECT_EQ(cause(), "");
  stand(400ms);
  EXPECT_EQ(cause(), "rank_silent");
}

TEST_F(StackStory, ASilentRanksEndWaitsNoLongerThanTheStacks) {
  train();
  bench.executor().freeze(key, 1);
  heard = 1;
  stand_until_asked(1);
  for (core::RankNumber rank = 0; rank < 2; ++rank) EXPECT_TRUE(give(rank, asked()[0], text_at("waits")).ok());
  stand(200ms);
  EXPECT_EQ(cause(), "rank_silent");
  EXPECT_THAT(reasons(), ElementsAre("before_end"));
  EXPECT_EQ(view().shown().given(), 2U);
}

TEST_F(StackStory, ASilentRankThatIsHeardAgainBeforeTheEndIsNotEnded) {
  train();
  bench.executor().freeze(key, 1);
  heard = 1;
  stand_until_asked(1);
  stand(1s);
  heard = 2;
  for (int i = 0; i < 50; ++i) {
    ++newest;
    stand(100ms);
  }
  EXPECT_EQ(cause(), "");
  EXPECT_EQ(bench.job(key.job).status(), "running");
}

TEST_F(StackStory, WhatFollowsFromASilentRankIsToldAfterIt) {
  train();
  bench.executor().freeze(key, 1);
  heard = 1;
  stand_until_asked(1);
  heard = 0;
  bench.executor().end(key, 0, {1, 0});
  bench.tick();
  EXPECT_EQ(cause(), "rank_silent");
  EXPECT_EQ(bench.count_events(key.job, "rank_silent"), 1);
}

TEST_F(StackStory, OfARankThatIsLostTheOthersAloneAreWaitedFor) {
  train();
  bench.executor().end_silently(key, 1, {0, 9});
  heard = 1;
  stand_until_asked(1);
  EXPECT_TRUE(give(0, asked()[0], text_at("waits")).ok());
  stand(200ms);
  EXPECT_EQ(cause(), "rank_silent");
  const auto kept = view();
  EXPECT_EQ(kept.shown().given(), 1U);
}

TEST_F(StackStory, WhereNobodyIsLeftNobodyIsAsked) {
  train();
  for (core::RankNumber rank = 0; rank < 2; ++rank) bench.executor().end_silently(key, rank, {0, 9});
  heard = 0;
  stand(5s);
  EXPECT_EQ(cause(), "rank_silent");
  EXPECT_THAT(asked(), IsEmpty());
}

TEST_F(StackStory, ASuspicionThatComesAgainAndAgainAsksOnceAMinute) {
  train();
  for (int i = 0; i < 3; ++i) {
    stand(11s);
    ++newest;
  }
  EXPECT_THAT(asked(), SizeIs(1));
}

TEST_F(StackStory, PeopleAskAndLearnWhoGaveNone) {
  train();
  const auto number = view(true).shown().number();
  EXPECT_THAT(asked(), ElementsAre(number));
  EXPECT_FALSE(view(false, number).shown().over());
  EXPECT_TRUE(give(1, number, text_at("loads")).ok());
  for (int i = 0; i < 70; ++i) bench.pass(100ms, [&] { bench.heartbeats(key, 2, 101 + i); });
  const auto over = view(false, number);
  EXPECT_TRUE(over.shown().over());
  EXPECT_EQ(over.shown().why(), "asked");
  EXPECT_EQ(over.shown().user(), "ann");
  EXPECT_EQ(over.shown().given(), 1U);
  EXPECT_THAT(over.ranks(0).problem(), HasSubstr("the agent beside it has given none within 6 s"));
  EXPECT_EQ(over.ranks(1).problem(), "");
  EXPECT_EQ(bench.controller().stack_text(key, number, 1), text_at("loads"));
  EXPECT_EQ(bench.controller().stack_text(key, number, 0), "");
}

TEST_F(StackStory, TasksHearOfTheNumberWithTheirAnswers) {
  train();
  muster::v1::TaskRequest request;
  *request.mutable_key() = Bench::beat(key, 0).key();
  const auto told = [&] { return bench.controller().task(request, bench.token(key)).value().stacks(); };
  EXPECT_EQ(told(), 0U);
  muster::v1::TaskResponse streamed;
  const auto stream = bench.controller().open_task_stream(request.key(), bench.token(key),
                                                          [&](const auto& answer) { streamed = answer; });
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(stream.value()->beat(request).ok());
  const auto number = view(true).shown().number();
  EXPECT_EQ(told(), number);
  EXPECT_EQ(streamed.stacks(), number) << "at once, and not with its next word";
}

TEST_F(StackStory, OnlyTheAttemptsOwnTasksAreHeardAndWithinBounds) {
  train();
  const auto number = view(true).shown().number();
  muster::v1::KeepStackRequest request;
  *request.mutable_key() = Bench::beat(key, 0).key();
  request.set_number(number);
  request.set_text("x");
  EXPECT_EQ(bench.controller().keep_stack(request, "wrong").refusal().kind, common::Refusal::Kind::kUnauthenticated);
  EXPECT_EQ(give(2, number, "x").refusal().kind, common::Refusal::Kind::kInvalid) << "there is no such rank";
  const auto long_text = give(0, number, std::string(agent::protocol::kMostStackBytes + 1, 'x'));
  ASSERT_FALSE(long_text.ok());
  EXPECT_THAT(long_text.refusal().text, HasSubstr("text has 262145 bytes"));
}

TEST_F(StackStory, AnAttemptThatDoesNotRunIsNotAsked) {
  train();
  bench.executor().end_all(key, {0, 0});
  bench.tick();
  muster::v1::StacksRequest request;
  request.set_job_id(key.job);
  request.set_ask(true);
  const auto ended = bench.controller().stacks(request);
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(ended.refusal().text,
              HasSubstr("attempt 1 of job 1 has ended, so no rank can give its stack; muster stacks 1"));
  request.set_ask(false);
  EXPECT_FALSE(bench.controller().stacks(request).value().has_shown());
  request.set_attempt(2);
  EXPECT_EQ(bench.controller().stacks(request).refusal().kind, common::Refusal::Kind::kNotFound);
  request.set_job_id(99);
  EXPECT_EQ(bench.controller().stacks(request).refusal().kind, common::Refusal::Kind::kNotFound);
}

}  // namespace
}  // namespace service::testing
