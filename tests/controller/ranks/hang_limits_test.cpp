// Goal: a hang is named within some times of what steps usually take, and no rank that works is taken for hung.
// Method: the rules are pure; ranks of a few lines of code go on in injected time.
#include "ranks/hang_limits.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/text.h"
#include "ranks/leave_step.h"
#include "ranks/live_ranks.h"
#include "ranks/liveness.h"

namespace ranks {
namespace {

using namespace std::chrono_literals;
using core::Millis;

constexpr Millis kStart{100000};
constexpr Millis kBeat{500};

/// Ranks of one attempt of a program that say every half second where they are.
class Gang {
 public:
  explicit Gang(std::uint32_t ranks = 1, LivenessRules rules = {.heartbeats = false})
      : watch(rules, ranks, 1, kStart), said_(ranks, Progress{0, "init"}) {}

  void say(core::RankNumber rank, core::Step step, const std::string& section = "step") {
    said_[rank] = {step, section, false};
  }
  /// Steps of so long each, of all ranks.
  void train(int steps, Millis step) {
    for (int i = 0; i < steps; ++i) {
      for (auto& one : said_) one = {one.step + 1, "step", false};
      EXPECT_FALSE(pass(step));
    }
  }
  /// The first finding within so long.
  std::optional<core::RankHung> pass(Millis time, bool heard = true) {
    for (const auto until = now + time; now < until; now += std::min(kBeat, until - now)) {
      for (core::RankNumber r = 0; heard && r < said_.size(); ++r) watch.heard(r, said_[r], now);
      if (const auto found = watch.findings(now); !found.empty()) return std::get<core::RankHung>(found.front());
    }
    return std::nullopt;
  }

  AttemptWatch watch;
  Millis now = kStart;
  std::vector<Progress> said_;
};

TEST(HangLimits, TenSecondsAreTheLeastForQuickSteps) {
  Gang gang;
  gang.train(100, 500ms);
  const auto hung = gang.pass(1min);
  ASSERT_TRUE(hung);
  EXPECT_GE(hung->no_progress_for, 10s);
  EXPECT_LE(hung->no_progress_for, 11s);
  EXPECT_EQ(hung->limit, 10s);
  EXPECT_EQ(hung->learned_from, 98U) << "the first two teach nothing";
  EXPECT_EQ(core::hung_text(*hung),
            "rank 0 made no progress for 10 s in section step; its limit is 10 s, learned from 98 steps");
}

TEST(HangLimits, SlowStepsGetFiveTimesWhatTheyTake) {
  Gang gang;
  gang.train(100, 20s);
  const auto hung = gang.pass(10min);
  ASSERT_TRUE(hung);
  EXPECT_GE(hung->no_progress_for, 100s);
  EXPECT_LE(hung->no_progress_for, 125s) << "a time is known to a fifth";
}

TEST(HangLimits, FewStepsSayNothing) {
  Gang gang;
  gang.train(15, 500ms);
  EXPECT_FALSE(gang.pass(29min));
  EXPECT_TRUE(gang.pass(2min));
}

TEST(HangLimits, AFirstStepThatTakesLongIsNoHangAndTeachesNothing) {
  Gang gang;
  gang.say(0, 1);
  EXPECT_FALSE(gang.pass(5min));
  gang.train(100, 500ms);
  const auto hung = gang.pass(1min);
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->limit, 10s);
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
  const auto hung = gang.pass(1h);
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->section, "evaluate");
  EXPECT_GE(hung->no_progress_for, 5min);
  EXPECT_LE(hung->no_progress_for, 7min);
}

TEST(HangLimits, RanksThatWaitForOneThatEvaluatesDoNotHang) {
  Gang gang(3);
  gang.train(100, 500ms);
  gang.say(0, 100, "evaluate");
  EXPECT_FALSE(gang.pass(29min)) << "the others stand at the barrier";
  gang.train(30, 500ms);
  EXPECT_TRUE(gang.pass(1min));
}

TEST(HangLimits, TheRankThatIsBehindIsNamed) {
  Gang gang(3);
  gang.train(100, 500ms);
  for (const core::RankNumber rank : {0U, 1U}) gang.say(rank, 101);
  const auto hung = gang.pass(1min);
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

TEST(HangLimits, TheUsersWordReplacesWhatIsLearned) {
  Gang gang(1, {.hung_after = 60s, .heartbeats = false});
  gang.train(100, 500ms);
  const auto hung = gang.pass(5min);
  ASSERT_TRUE(hung);
  EXPECT_GE(hung->no_progress_for, 60s);
  EXPECT_EQ(hung->learned_from, 0U);
  EXPECT_EQ(core::hung_text(*hung), "rank 0 made no progress for 1 min in section step");
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
  const auto hung = gang.pass(1min);
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->limit, 10s) << "neither the hour nor the nine seconds after it have taught anything";
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
  ASSERT_TRUE(gang.pass(1min));
  Gang next;
  next.watch.set_limits(gang.watch.limits());
  next.train(4, 500ms);
  const auto hung = next.pass(5min);
  ASSERT_TRUE(hung) << "four steps are enough to know it for the same work";
  EXPECT_GE(hung->no_progress_for, 40s) << "the first hang may have been none";
  EXPECT_LE(hung->no_progress_for, 43s);
}

TEST(HangLimits, ARecipeHasThemToo) {
  Gang gang(2, {});
  gang.train(100, 500ms);
  const auto hung = gang.pass(1min);
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->limit, 10s);
}

TEST(HangLimits, PeopleReadWhereALimitIsFrom) {
  EXPECT_EQ(hang_limit_text({12s, 200}, "step", false), "12 s, learned from 200 steps");
  EXPECT_EQ(hang_limit_text({5min, 21}, "evaluate", false), "5 min, learned from 21 stays");
  EXPECT_EQ(hang_limit_text({30min, 0}, "step", false), "30 min until 20 steps are timed, then learned from them");
  EXPECT_EQ(hang_limit_text({3s, 0}, "step", true), "3 s, as liveness.hung_after says");
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
