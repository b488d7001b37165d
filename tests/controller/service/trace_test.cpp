// Goal: a request to record steps reaches all ranks of a running training, is one request however often it is made, and
// is answered with what the ranks say, across restarts of the controller and ends of attempts.
// Method: the streams of a controller without threads and without a network.
#include <gmock/gmock.h>

#include "agent/protocol/files.h"
#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

/// The streams of the two ranks of a training.
class TraceRequest : public ::testing::Test {
 protected:
  struct Rank {
    std::shared_ptr<ranks::RankStream> stream;
    muster::v1::BeatResponse told;
  };

  void start(std::uint32_t ranks = 2) {
    key = {bench.submit(recipe_request("a", ranks)), 1};
    connect(ranks);
  }
  void connect(std::uint32_t ranks = 2) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      open(rank);
      beat(rank, 10);
    }
  }
  void open(core::RankNumber rank) {
    auto& told = heard[rank].told;
    told = {};
    auto opened = bench.controller().open_stream(Bench::beat(key, rank).key(), bench.token(key),
                                                 [&told](const auto& answer) { told = answer; });
    ASSERT_TRUE(opened.ok());
    heard[rank].stream = opened.value();
    first[rank] = true;
  }
  /// A heartbeat. It says how the rank's newest trace stands, if that is new.
  void beat(core::RankNumber rank, core::Step step) {
    auto request = Bench::beat(key, rank, step);
    if (can_record && (std::exchange(first[rank], false) || news[rank])) *request.mutable_trace() = reports[rank];
    news[rank] = false;
    const auto outcome = heard[rank].stream->beat(request);
    ASSERT_TRUE(outcome.ok());
    if (outcome.value()) heard[rank].stream->work();
  }
  void say(core::RankNumber rank, std::uint64_t number, core::Step step, bool over, const std::string& problem = "") {
    auto& report = reports[rank];
    report.Clear();
    report.set_number(number);
    report.set_first_step(step);
    report.set_steps(1);
    report.set_over(over);
    report.set_problem(problem);
    if (over && problem.empty()) report.add_steps_written(step);
    news[rank] = true;
    beat(rank, step);
  }
  muster::v1::TraceRequest request(std::uint64_t number, core::Step at = 0) const {
    muster::v1::TraceRequest out;
    out.set_job_id(key.job);
    out.set_user("ben");
    out.set_number(number);
    out.set_first_step(at);
    return out;
  }
  muster::v1::TraceView ask(std::uint64_t number, core::Step at = 0) {
    auto outcome = bench.controller().trace(request(number, at));
    EXPECT_TRUE(outcome.ok()) << outcome.refusal().text;
    return outcome.ok() ? outcome.value() : muster::v1::TraceView{};
  }
  std::string refusal(const muster::v1::TraceRequest& request) {
    const auto outcome = bench.controller().trace(request);
    return outcome.ok() ? "taken" : outcome.refusal().text;
  }
  std::string refusal(std::uint64_t number, core::Step at = 0) { return refusal(request(number, at)); }

  Bench bench;
  core::AttemptKey key;
  std::map<core::RankNumber, Rank> heard;
  std::map<core::RankNumber, muster::v1::TraceReport> reports;
  std::map<core::RankNumber, bool> first, news;
  bool can_record = true;
};

TEST_F(TraceRequest, IsToldToAllRanksAtOnceAndAnsweredByThem) {
  start();
  EXPECT_FALSE(heard[0].told.has_trace());
  const auto asked = ask(5, 14);
  EXPECT_EQ(asked.state(), "asked");
  EXPECT_EQ(asked.attempt(), 1U);
  EXPECT_EQ(asked.steps(), 1U);
  EXPECT_THAT(asked.folder(), EndsWith("/checkpoints/trace"));
  for (auto& [number, rank] : heard) {
    EXPECT_EQ(rank.told.trace().number(), 5U) << "without a heartbeat in between";
    EXPECT_EQ(rank.told.trace().first_step(), 14);
    EXPECT_EQ(rank.told.trace().steps(), 1U);
  }
  say(0, 5, 14, false);
  EXPECT_EQ(ask(5).state(), "recording");
  EXPECT_EQ(ask(5).first_step(), 14);
  say(0, 5, 14, true);
  EXPECT_EQ(ask(5).state(), "recording") << "rank 1 is not done";
  say(1, 5, 14, true, "no trace in /full/step-14.rank1.json: No space left on device");
  const auto done = ask(5);
  EXPECT_EQ(done.state(), "over");
  EXPECT_EQ(done.problem(), "");
  EXPECT_THAT(done.ranks(0).steps_written(), ElementsAre(14));
  EXPECT_EQ(done.ranks(1).steps_written_size(), 0);
  EXPECT_THAT(done.ranks(1).problem(), HasSubstr("No space left"));
  bench.clock.advance(5s);
  beat(0, 20);
  EXPECT_FALSE(heard[0].told.has_trace()) << "it has spoken";
}

TEST_F(TraceRequest, IsOneRequestHoweverOftenItIsMade) {
  start();
  ask(5);
  ask(5);
  say(0, 5, 12, true);
  say(1, 5, 12, true);
  EXPECT_EQ(ask(5).state(), "over");
  bench.clock.advance(5s);
  beat(0, 20);
  EXPECT_FALSE(heard[0].told.has_trace());
  EXPECT_EQ(ask(6).state(), "asked");
  EXPECT_EQ(heard[0].told.trace().number(), 6U);
  EXPECT_EQ(ask(5).state(), "over") << "the earlier one is known still";
}

TEST_F(TraceRequest, IsRefusedWhileAnotherIsUnderWay) {
  start();
  ask(5);
  EXPECT_EQ(refusal(6), "job 1 records 1 step for ben already; ask again when that is done");
  say(0, 5, 12, false);
  EXPECT_EQ(refusal(6), "job 1 records step 12 for ben already; ask again when that is done");
}

TEST_F(TraceRequest, IsRefusedWhereNoRankCouldRecord) {
  const auto program = bench.submit(command_request("b"));
  auto of = request(5);
  of.set_job_id(program);
  EXPECT_THAT(refusal(of), HasSubstr("runs a program of its own, whose steps muster cannot record; use"));
  of.set_job_id(99);
  EXPECT_EQ(refusal(of), "there is no job 99");
  auto held = recipe_request("c");
  held.mutable_spec()->set_hold(true);
  of.set_job_id(bench.submit(held));
  EXPECT_THAT(refusal(of), AllOf(HasSubstr("is held, so no rank can record a step"), HasSubstr("train.trace_step")));
  start();
  ASSERT_TRUE(bench.controller().cancel(key.job, "ada").ok());
  EXPECT_THAT(refusal(5), HasSubstr("is stopping, so no rank can record a step"));
  bench.executor().end_all(key, {0, 0});
  bench.tick();
  EXPECT_THAT(refusal(5), HasSubstr("is cancelled, so no rank can record a step; submit it again"));
}

TEST_F(TraceRequest, IsRefusedForAStepThatIsPastOrNeverComes) {
  start();
  EXPECT_THAT(refusal(5, 11), HasSubstr("has done step 10 of 100; want a step from 12 to 100, or none"));
  EXPECT_THAT(refusal(5, 101), HasSubstr("want a step from 12 to 100"));
  EXPECT_EQ(ask(5, 100).first_step(), 100);
  EXPECT_EQ(refusal(6), "job 1 records step 100 for ben already; ask again when that is done");
}

TEST_F(TraceRequest, IsRefusedIfItMakesNoSense) {
  start();
  EXPECT_THAT(refusal(0), HasSubstr("number 0: want"));
  EXPECT_THAT(refusal(agent::protocol::kMostTraceNumber + 1), HasSubstr("want a random number"));
  EXPECT_THAT(refusal(5, -1), HasSubstr("first_step -1"));
  auto many = request(5);
  many.set_steps(agent::protocol::kMostTraceSteps + 1);
  EXPECT_THAT(refusal(many), HasSubstr("at most 1000 steps"));
}

TEST_F(TraceRequest, OfRanksThatAreTooOldIsRefused) {
  can_record = false;
  start();
  EXPECT_THAT(refusal(5),
              AllOf(HasSubstr("rank 0 of job 1 cannot record steps on request"), HasSubstr("muster requeue 1")));
}

TEST_F(TraceRequest, OfRanksThatTurnOutToBeTooOldIsOver) {
  key = {bench.submit(recipe_request("a")), 1};
  EXPECT_EQ(ask(5).state(), "asked") << "no rank has spoken yet";
  can_record = false;
  connect();
  const auto over = ask(5);
  EXPECT_EQ(over.state(), "over");
  EXPECT_THAT(over.ranks(1).problem(), HasSubstr("cannot record steps on request"));
}

TEST_F(TraceRequest, ReachesARankThatOpensItsStreamLater) {
  key = {bench.submit(recipe_request("a")), 1};
  ask(5);
  connect();
  EXPECT_EQ(heard[0].told.trace().number(), 5U);
  EXPECT_EQ(heard[1].told.trace().number(), 5U);
}

TEST_F(TraceRequest, IsOverWhenItsAttemptHasEnded) {
  start();
  ask(5);
  say(0, 5, 12, true);
  bench.executor().end(key, 1, {0, 9});
  bench.executor().end(key, 0, {1, 0});
  bench.tick();
  const auto over = ask(5);
  EXPECT_EQ(over.state(), "over");
  EXPECT_EQ(over.attempt(), 1U);
  EXPECT_THAT(over.problem(), AllOf(HasSubstr("attempt 1 has ended before its ranks had recorded all steps (rank 1"),
                                    HasSubstr("ask again when the next attempt trains")));
  EXPECT_THAT(over.ranks(0).steps_written(), ElementsAre(12)) << "what is there is told";
  bench.pass(2s);
  key.number = 2;
  ASSERT_TRUE(bench.machine->has(key));
  reports.clear();
  connect();
  EXPECT_FALSE(heard[0].told.has_trace()) << "the next attempt is not asked";
  EXPECT_EQ(ask(5).attempt(), 1U) << "the same number is still the request to attempt 1";
  EXPECT_EQ(ask(6).attempt(), 2U);
}

TEST_F(TraceRequest, IsAnsweredAfterARestartOfTheController) {
  start();
  ask(5);
  say(0, 5, 12, false);
  heard.clear();
  bench.restart();
  for (core::RankNumber rank = 0; rank < 2; ++rank) open(rank);
  say(0, 5, 12, true);
  EXPECT_EQ(ask(5).state(), "recording") << "known from rank 0 alone";
  EXPECT_EQ(refusal(6), "job 1 records step 12 already; ask again when that is done");
  beat(1, 11);
  EXPECT_EQ(heard[1].told.trace().number(), 5U);
  say(1, 5, 12, true);
  EXPECT_EQ(ask(5).state(), "over");
}

TEST_F(TraceRequest, ThatARestartHasForgottenIsMadeAgain) {
  start();
  ask(5);
  heard.clear();
  bench.restart();
  connect();
  EXPECT_FALSE(heard[0].told.has_trace());
  EXPECT_EQ(ask(5).state(), "asked");
  EXPECT_EQ(heard[0].told.trace().number(), 5U);
}

}  // namespace
}  // namespace service::testing
