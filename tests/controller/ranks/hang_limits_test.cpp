// Goal: a hang is suspected within some times of what steps usually take, it ends the attempt only after a long time in
// which nothing came out of it, and no rank that works is suspected.
// Method: the rules are pure; ranks of a few lines of code go on in injected time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "controller/core/core_text.h"
#include "controller/ranks/live_ranks.h"
#include "controller/ranks/liveness.h"
#include "tests/controller/core/sentences.h"

namespace ranks {
namespace {

using namespace std::chrono_literals;
using core::Millis;

constexpr Millis kStart{100000};
constexpr Millis kBeat{500};

struct HangLimitsStory : test::ToldStories {
  HangLimitsStory() : ToldStories("liveness.txt") {}
};

/// Ranks of one attempt of a program that say every half second where they are.
class Gang {
 public:
  explicit Gang(std::uint32_t ranks = 1, LivenessRules rules = {.heartbeats = false})
      : watch(rules, ranks, 1, kStart), said_(ranks, Progress{0, "init"}) {}

  void say(core::RankNumber rank, core::Step step, const std::string& section = "step") {
    said_[rank] = {step, section};
  }
  /// Steps of so long each, of all ranks.
  void train(int steps, Millis step) {
    for (int i = 0; i < steps; ++i) {
      for (auto& one : said_) one = {one.step + 1, "step"};
      EXPECT_FALSE(pass(step));
    }
  }
  /// The first suspicion within so long.
  std::optional<core::AttemptSuspected> pass(Millis time, bool heard = true) {
    for (const auto until = now + time; now < until; now += std::min(kBeat, until - now)) {
      speak(heard);
      EXPECT_TRUE(watch.findings(now).empty());
      const auto told = watch.suspicion(now, now);
      if (told && std::holds_alternative<core::AttemptSuspected>(*told)) return std::get<core::AttemptSuspected>(*told);
    }
    return std::nullopt;
  }
  /// The end within so long. Something comes out of the attempt as often as `output` says; 0: never.
  std::optional<core::RankHung> wait_for_end(Millis time, Millis output = Millis{0}) {
    Millis written = now;
    for (const auto until = now + time; now < until; now += std::min(kBeat, until - now)) {
      speak(true);
      if (output > Millis{0} && now - written >= output) {
        watch.came_out(now);
        written = now;
      }
      if (const auto found = watch.findings(now); !found.empty()) return std::get<core::RankHung>(found.front());
      watch.suspicion(now, now);
    }
    return std::nullopt;
  }
  void speak(bool heard) {
    for (core::RankNumber r = 0; heard && r < said_.size(); ++r) watch.heard(r, said_[r], now);
  }

  AttemptWatch watch;
  Millis now = kStart;
  std::vector<Progress> said_;
};

TEST_F(HangLimitsStory, TenSecondsAreTheLeastForQuickSteps) {
  Gang gang;
  gang.train(100, 500ms);
  const auto suspected = gang.pass(1min);
  ASSERT_TRUE(suspected);
  EXPECT_EQ(suspected->of, core::Suspicion::kHung);
  EXPECT_GE(suspected->lasts, 10s);
  EXPECT_LE(suspected->lasts, 11s);
  EXPECT_EQ(suspected->limit, 10s);
  EXPECT_EQ(suspected->learned_from, 98U) << "the first two teach nothing";
  tell(core::suspected_text(*suspected));
  EXPECT_TRUE(gang.watch.looks_hung());
}

TEST(HangLimits, ASuspicionIsToldOnceAndTakenBackByProgress) {
  Gang gang;
  gang.train(100, 500ms);
  ASSERT_TRUE(gang.pass(1min));
  EXPECT_FALSE(gang.pass(5min)) << "once";
  gang.watch.fresh_start(gang.now);
  EXPECT_FALSE(gang.watch.suspicion(gang.now, gang.now)) << "fresh time is no progress";
  gang.say(0, 101);
  gang.now += 1s;
  gang.speak(true);
  const auto over = gang.watch.suspicion(gang.now, gang.now);
  ASSERT_TRUE(over);
  EXPECT_EQ(std::get<core::SuspicionOver>(*over).of, core::Suspicion::kHung);
  EXPECT_GE(std::get<core::SuspicionOver>(*over).after, 5min);
  EXPECT_FALSE(gang.watch.looks_hung());
  EXPECT_TRUE(gang.pass(1min)) << "and told again when it stands again";
}

TEST_F(HangLimitsStory, AnEndComesAfterTenMinutesWithoutProgressAndOutput) {
  Gang gang;
  gang.train(100, 500ms);
  const auto hung = gang.wait_for_end(1h);
  ASSERT_TRUE(hung);
  EXPECT_GE(hung->no_progress_for, 10min);
  EXPECT_LE(hung->no_progress_for, 10min + 1s);
  tell(core::hung_text(*hung));
  EXPECT_FALSE(gang.wait_for_end(1h)) << "told once";
}

/// A program that evaluates for five seconds after every fortieth step, and names that.
void train_and_evaluate(Gang& gang) {
  for (int round = 0; round < 25; ++round) {
    gang.train(40, 500ms);
    gang.say(0, gang.said_[0].step, "evaluate");
    ASSERT_FALSE(gang.pass(5s)) << round;
  }
}

TEST(HangLimits, ANameForOnePauseSaysNothingOfTheOthers) {
  for (const char* other : {"step", "save", "end"}) {
    Gang gang;
    train_and_evaluate(gang);
    gang.train(40, 500ms);
    gang.say(0, gang.said_[0].step, other);
    EXPECT_FALSE(gang.wait_for_end(9min + 50s)) << other << ": it may save or download there";
    EXPECT_EQ(gang.wait_for_end(20s).has_value(), other == std::string("step"))
        << other << ": a section that is not known has 30 min";
  }
}

// The last evaluation may have a hundred times as much to read as those before it.
TEST(HangLimits, ALongStayInANamedSectionAfterManyShortOnesIsSuspectedSoonAndEndsLate) {
  Gang gang;
  train_and_evaluate(gang);
  gang.train(40, 500ms);
  gang.say(0, gang.said_[0].step, "evaluate");
  const auto suspected = gang.pass(2min);
  ASSERT_TRUE(suspected);
  EXPECT_EQ(suspected->limit, 1min) << "what was learned of the section";
  const auto hung = gang.wait_for_end(1h);
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->section, "evaluate");
  EXPECT_GE(hung->no_progress_for, 10min);
  EXPECT_LE(hung->no_progress_for, 10min + 1s);
}

// The others wait at a barrier of which no section tells, or do something of their own.
TEST(HangLimits, RanksThatNameNothingGetTheLongTimeBesideOneThatEvaluates) {
  Gang gang(2);
  train_and_evaluate(gang);
  gang.train(40, 500ms);
  gang.say(0, gang.said_[0].step, "evaluate");
  EXPECT_FALSE(gang.wait_for_end(9min + 50s));
  EXPECT_TRUE(gang.wait_for_end(20s));
}

// "epoch" is no pause: the program loads, evaluates and saves inside it.
TEST(HangLimits, ANameForAllThatAProgramDoesTellsOfNoPause) {
  Gang gang;
  core::Step step = 0;
  for (int epoch = 0; epoch < 25; ++epoch) {
    for (int i = 0; i < 40; ++i) {
      gang.say(0, ++step, "epoch");
      ASSERT_FALSE(gang.pass(500ms));
    }
    gang.say(0, step, "step");
    ASSERT_FALSE(gang.pass(1s));
  }
  gang.say(0, step, "epoch");
  EXPECT_FALSE(gang.wait_for_end(9min + 50s));
  EXPECT_TRUE(gang.wait_for_end(20s));
}

TEST(HangLimits, WhatWritesIsNotEnded) {
  Gang gang;
  gang.train(100, 500ms);
  EXPECT_FALSE(gang.wait_for_end(10h, 9min)) << "an evaluation that prints now and then";
  const auto hung = gang.wait_for_end(1h);
  ASSERT_TRUE(hung);
  EXPECT_GE(hung->no_progress_for, 10h);
}

TEST(HangLimits, SlowStepsAreWaitedForFourTimesTheirLimit) {
  Gang gang(2, {});
  gang.train(100, 20s);
  const auto hung = gang.wait_for_end(1h);
  ASSERT_TRUE(hung);
  EXPECT_GE(hung->no_progress_for, 400s);
  EXPECT_LE(hung->no_progress_for, 500s);
}

TEST(HangLimits, NobodyHangsAfterTheLastStepOrAToldEndOrTheFirstExit) {
  for (const bool done : {true, false}) {
    Gang gang(2);
    gang.train(100, 500ms);
    if (done) {
      for (auto& rank : gang.said_) rank.done = true;
    } else {
      core::Attempt attempt;
      attempt.state = core::AttemptState::kRunning;
      attempt.ranks.resize(2);
      attempt.ranks[1].state = core::RankState::kExited;
      gang.watch.follow(attempt, gang.now);
    }
    EXPECT_FALSE(gang.pass(2h)) << done;
    EXPECT_FALSE(gang.wait_for_end(2h)) << done;
  }
}

TEST_F(HangLimitsStory, WhereOneRankReportsNothingIsSaidOfTheOthers) {
  Gang gang(3);
  for (core::Step step = 1; step <= 100; ++step) {
    gang.say(0, step);
    ASSERT_FALSE(gang.pass(500ms));
  }
  const auto suspected = gang.pass(1min);
  ASSERT_TRUE(suspected);
  tell(core::suspected_text(*suspected));
  const auto hung = gang.wait_for_end(1h);
  ASSERT_TRUE(hung);
  tell(core::hung_text(*hung));
}

TEST(HangLimits, SlowStepsGetFiveTimesWhatTheyTake) {
  Gang gang;
  gang.train(100, 20s);
  const auto suspected = gang.pass(10min);
  ASSERT_TRUE(suspected);
  EXPECT_GE(suspected->lasts, 100s);
  EXPECT_LE(suspected->lasts, 125s) << "a time is known to a fifth";
}

TEST_F(HangLimitsStory, FewStepsSayNothing) {
  Gang gang;
  gang.train(15, 500ms);
  EXPECT_FALSE(gang.pass(14min));
  const auto suspected = gang.pass(2min);
  ASSERT_TRUE(suspected);
  tell(core::suspected_text(*suspected));
  const auto hung = gang.wait_for_end(16min);
  ASSERT_TRUE(hung);
  tell(core::hung_text(*hung));
}

TEST(HangLimits, AFirstStepThatTakesLongIsNoHangAndTeachesNothing) {
  Gang gang;
  gang.say(0, 1);
  EXPECT_FALSE(gang.pass(5min));
  gang.train(100, 500ms);
  const auto suspected = gang.pass(1min);
  ASSERT_TRUE(suspected);
  EXPECT_EQ(suspected->limit, 10s);
}

TEST(HangLimits, ANewSectionHasTheGenerousLimitAndLearnsItsOwn) {
  Gang gang;
  core::Step step = 0;
  for (int round = 0; round < 25; ++round) {
    gang.train(40, 500ms);
    step += 40;
    gang.say(0, step, "evaluate");
    ASSERT_FALSE(gang.pass(60s)) << round;
  }
  gang.train(40, 500ms);
  gang.say(0, step + 40, "evaluate");
  const auto suspected = gang.pass(1h);
  ASSERT_TRUE(suspected);
  EXPECT_EQ(suspected->section, "evaluate");
  EXPECT_GE(suspected->lasts, 5min);
  EXPECT_LE(suspected->lasts, 7min);
}

TEST(HangLimits, RanksThatWaitForOneThatEvaluatesDoNotHang) {
  Gang gang(3);
  gang.train(100, 500ms);
  gang.say(0, 100, "evaluate");
  EXPECT_FALSE(gang.pass(14min)) << "the others stand at the barrier";
  gang.train(30, 500ms);
  EXPECT_TRUE(gang.pass(1min));
}

TEST(HangLimits, TheRankThatIsBehindIsNamed) {
  Gang gang(3);
  gang.train(100, 500ms);
  for (const core::RankNumber rank : {0U, 1U}) gang.say(rank, 101);
  const auto suspected = gang.pass(1min);
  ASSERT_TRUE(suspected);
  EXPECT_EQ(suspected->first_rank, 2U);
  const auto hung = gang.wait_for_end(1h);
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->rank, 2U);
}

TEST(HangLimits, ALongPauseThatIsUsualIsNoHang) {
  Gang gang;
  for (int round = 0; round < 20; ++round) {
    gang.train(400, 500ms);
    // No section tells of it, and it is rarer than one time in a hundred.
    ASSERT_FALSE(gang.pass(9s)) << round;
  }
  gang.train(1, 500ms);
  EXPECT_FALSE(gang.pass(15s)) << "twice the longest";
  EXPECT_TRUE(gang.pass(15s));
}

TEST_F(HangLimitsStory, TheUsersWordReplacesWhatIsLearned) {
  Gang gang(1, {.hung_after = 60s, .heartbeats = false});
  gang.train(100, 500ms);
  const auto hung = gang.wait_for_end(5min, 1s);
  ASSERT_TRUE(hung) << "whatever comes out";
  EXPECT_GE(hung->no_progress_for, 60s);
  EXPECT_LE(hung->no_progress_for, 61s);
  EXPECT_EQ(hung->learned_from, 0U);
  tell(core::hung_text(*hung));
}

// Rank 0 evaluates, and the others stand at a barrier. The one that is behind is named, with the limit that holds.
TEST_F(HangLimitsStory, TheSectionWhoseLimitHoldsIsNamedWhereItIsAnother) {
  Gang gang(2);
  train_and_evaluate(gang);
  gang.train(40, 500ms);
  gang.say(0, gang.said_[0].step + 1, "evaluate");
  const auto suspected = gang.pass(5min);
  ASSERT_TRUE(suspected);
  tell(core::suspected_text(*suspected));
  gang.say(0, gang.said_[0].step, "save");
  const auto hung = gang.wait_for_end(1h);
  ASSERT_TRUE(hung);
  tell(core::hung_text(*hung));
}

TEST_F(HangLimitsStory, TheUsersWordIsToldAsSuch) {
  const auto told = [](Millis hung_after, Millis step) {
    Gang gang(1, {.hung_after = hung_after, .heartbeats = false});
    gang.train(100, step);
    const auto suspected = gang.pass(hung_after);
    EXPECT_TRUE(suspected);
    return suspected ? core::suspected_text(*suspected) : "";
  };
  tell(told(60s, 500ms));
  tell(told(12s, 1s));
}

TEST(HangLimits, FromSilenceNothingFollows) {
  Gang gang;
  gang.train(100, 500ms);
  EXPECT_FALSE(gang.pass(1h, false)) << "nobody speaks for the program: its agent, or the controller, is away";
  EXPECT_TRUE(gang.pass(1min)) << "but the first word that nothing has moved counts";
}

TEST(HangLimits, WhatAControllerCouldNotHearIsNeitherAHangNorATime) {
  Gang gang;
  gang.train(100, 500ms);
  gang.now += 1h;
  gang.watch.fresh_start(gang.now);
  EXPECT_FALSE(gang.pass(9s));
  gang.train(10, 500ms);
  const auto suspected = gang.pass(1min);
  ASSERT_TRUE(suspected);
  EXPECT_EQ(suspected->limit, 10s) << "neither the hour nor the nine seconds after it have taught anything";
}

TEST(HangLimits, AnAgentThatCannotReadTheFileKnowsOfNoHang) {
  Gang gang;
  gang.train(100, 500ms);
  gang.said_[0].blind = true;
  EXPECT_FALSE(gang.pass(10min));
  gang.said_[0].blind = false;
  EXPECT_TRUE(gang.pass(1min));
}

TEST(HangLimits, TheNextAttemptBeginsWithWhatWasLearnedAndIsMorePatientAfterAHang) {
  Gang gang;
  gang.train(100, 500ms);
  ASSERT_TRUE(gang.wait_for_end(11min));
  Gang next;
  next.watch.set_limits(gang.watch.limits());
  next.train(4, 500ms);
  EXPECT_TRUE(next.pass(1min)) << "four steps are enough to know it for the same work";
  const auto hung = next.wait_for_end(1h);
  ASSERT_TRUE(hung);
  EXPECT_GE(hung->no_progress_for, 20min) << "the first hang may have been none";
  EXPECT_LE(hung->no_progress_for, 20min + 2s);
}

/// A trainer as people write them. Ranks report from rank 0 on, as many as `report` says.
struct Trainer {
  const char* name;
  Millis start, step, pause;  // imports and downloads, one step, what it does after each epoch of 50 steps
  const char* section = "";   // that it names for the pause
  Millis output{0};           // between two lines of its log in a pause; 0: it prints nothing
  Millis end{0};              // from the last step to the exit
  bool tells_total = false;
  std::uint32_t ranks = 2, report = 1;
};

class OrdinaryTrainers : public ::testing::TestWithParam<Trainer> {};

TEST_P(OrdinaryTrainers, AreNotEnded) {
  const auto& trainer = GetParam();
  constexpr int kEpochs = 6, kSteps = 50;
  Gang gang(trainer.ranks);
  const auto goes_on = [&](Millis time) { return !gang.wait_for_end(time, trainer.output).has_value(); };
  ASSERT_TRUE(goes_on(trainer.start));
  core::Step step = 0;
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    for (int i = 0; i < kSteps; ++i) {
      ++step;
      const bool done = trainer.tells_total && step == kEpochs * kSteps;
      for (core::RankNumber r = 0; r < trainer.report; ++r) gang.said_[r] = {step, "step", false, done};
      ASSERT_TRUE(goes_on(trainer.step)) << step;
    }
    const std::string section = trainer.section;
    if (!section.empty()) gang.say(0, step, section);
    ASSERT_TRUE(goes_on(epoch < kEpochs ? trainer.pause : std::max(trainer.pause, trainer.end))) << epoch;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, OrdinaryTrainers,
    ::testing::Values(
        Trainer{"Ddp", 10s, 200ms, 2s}, Trainer{"DdpAllRanksReport", 10s, 200ms, 2s, "", 0s, 0s, false, 4, 4},
        Trainer{"EvaluatesFor60s", 10s, 200ms, 60s}, Trainer{"EvaluatesFor400s", 10s, 200ms, 400s},
        Trainer{"EvaluatesInASectionAndSavesInNone", 10s, 200ms, 20s, "evaluate", 0s, 9min},
        Trainer{"EvaluatesFor60sInASection", 10s, 200ms, 60s, "evaluate"},
        Trainer{"EvaluatesFor400sInASection", 10s, 200ms, 400s, "evaluate"},
        Trainer{"EvaluatesForAnHourAndPrints", 10s, 200ms, 1h, "", 30s},
        Trainer{"SavesFor90s", 10s, 200ms, 90s, "checkpoint"}, Trainer{"ImportsSlowly", 5min, 200ms, 2s},
        Trainer{"DownloadsADataset", 25min, 200ms, 2s}, Trainer{"ExitsIn25s", 10s, 200ms, 2s, "", 0s, 25s},
        Trainer{"ExitsIn60s", 10s, 200ms, 2s, "", 0s, 60s},
        Trainer{"ExitsIn20minAfterItsLastStep", 10s, 200ms, 2s, "", 0s, 20min, true},
        Trainer{"ExportsFor9minAtTheEnd", 10s, 200ms, 2s, "", 0s, 9min},
        Trainer{"PausesFor5minEachEpoch", 10s, 500ms, 5min}, Trainer{"TakesAMinuteAStep", 10s, 1min, 3min},
        Trainer{"TakesTenMinutesAStep", 10s, 10min, 20min, "evaluate"}, Trainer{"LogsEvery50Steps", 10s, 10s, 2min},
        Trainer{"OneRank", 10s, 200ms, 120s, "", 0s, 0s, false, 1, 1},
        Trainer{"AccelerateOn8Ranks", 30s, 300ms, 5min, "", 60s, 30s, true, 8, 1}),
    [](const ::testing::TestParamInfo<Trainer>& row) { return std::string(row.param.name); });

TEST(HangLimits, ARecipeHasThemToo) {
  Gang gang(2, {});
  gang.train(100, 500ms);
  const auto suspected = gang.pass(1min);
  ASSERT_TRUE(suspected);
  EXPECT_EQ(suspected->limit, 10s);
  const auto hung = gang.wait_for_end(2min);
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->limit, 1min);
}

TEST_F(HangLimitsStory, PeopleReadWhereALimitIsFrom) {
  tell(hang_limit_text({12s, 200}, "step", false));
  tell(hang_limit_text({5min, 21}, "evaluate", false));
  tell(hang_limit_text({30min, 0}, "step", false));
  tell(hang_limit_text({3s, 0}, "step", true));
}

TEST(LeaveStep, IsAheadOfEveryRankWhenTheStopArrives) {
  const RankPace quick{100, 10, 12, 200ms}, slow{98, 11, 20, 400ms};
  const auto at = leave_step(std::array{quick, slow}, 500ms, 30s);
  ASSERT_TRUE(at);
  EXPECT_EQ(*at, 100 + 350 + 1) << "3.5 s on the way, ten milliseconds a step";
}

TEST(LeaveStep, IsTwoStepsAheadOfLongSteps) {
  EXPECT_EQ(leave_step(std::array{RankPace{7, 5000, 5000, 0ms}}, 500ms, 60s), 9);
}

TEST(LeaveStep, IsNoneThatARankCannotReachInTime) {
  EXPECT_EQ(leave_step(std::array{RankPace{7, 20'000, 20'000, 0ms}}, 500ms, 30s), std::nullopt);
  EXPECT_EQ(leave_step(std::array{RankPace{1000, 10, 10, 0ms}, RankPace{100, 100, 100, 0ms}}, 500ms, 30s),
            std::nullopt);
  EXPECT_EQ(leave_step({}, 500ms, 30s), std::nullopt) << "nobody has told of a step";
  EXPECT_EQ(leave_step(std::array{RankPace{1, 0, 0, 0ms}}, 500ms, 30s), std::nullopt)
      << "how long one takes is not known";
}

TEST(LeaveStep, IsTheSameForEveryRankHoweverLateItAsks) {
  LiveRanks live;
  const core::AttemptKey key{1, 1};
  live.track(key, {.stop_grace = 30s, .heartbeats = false}, 2, kStart, kStart);
  muster::v1::HeartbeatRequest beat;
  beat.set_step(50);
  beat.set_step_ms(100);
  live.heartbeat(key, 0, beat, kStart);
  const auto first = live.leave_step(key, 500ms, kStart);
  EXPECT_EQ(first, 50 + 35 + 1);
  beat.set_step(60);
  live.heartbeat(key, 0, beat, kStart + 1s);
  EXPECT_EQ(live.leave_step(key, 500ms, kStart + 1s), first);
}

}  // namespace
}  // namespace ranks
