#include "controller/ranks/rank_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ranks {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class PaceTest : public ::testing::Test {
 protected:
  /// So late are heartbeats read for so long.
  void late(core::Millis lag, core::Millis time) {
    for (core::Millis gone{0}; gone < time; gone += 100ms) pace_.note(lag, now_ += 100ms);
  }
  Pace pace_;
  core::Millis now_{1'000'000};
};

TEST_F(PaceTest, InTimeEveryJobHasItsOwnInterval) {
  late(5ms, 1min);
  EXPECT_EQ(pace_.state(), Pace::State::kFine);
  EXPECT_EQ(pace_.interval(500ms), 500ms);
  EXPECT_EQ(pace_.grace(2500ms), 0ms);
  EXPECT_EQ(pace_.problem(), "");
}

TEST_F(PaceTest, AMomentOfLatenessChangesNothing) {
  late(600ms, 400ms);
  EXPECT_EQ(pace_.state(), Pace::State::kOverloaded) << "but it has its name at once";
  late(5ms, 1s);
  EXPECT_EQ(pace_.state(), Pace::State::kFine);
  EXPECT_EQ(pace_.floor(), 0ms);
}

TEST_F(PaceTest, TheIntervalGrowsWhileHeartbeatsAreLateUpToABound) {
  late(600ms, 1s);
  EXPECT_EQ(pace_.interval(500ms), 1s);
  EXPECT_EQ(pace_.interval(2s), 2s) << "a job that asks for less keeps its own";
  late(600ms, 4s);
  EXPECT_EQ(pace_.interval(500ms), 2s);
  late(600ms, 60s);
  EXPECT_EQ(pace_.interval(500ms), Pace::kMostFloor);
  EXPECT_THAT(pace_.problem(), HasSubstr("overloaded: heartbeats are read 0.6 s after they arrive"));
  EXPECT_THAT(pace_.problem(), HasSubstr("one heartbeat in 4.0 s"));
}

TEST_F(PaceTest, ALongerIntervalGivesALongerSilence) {
  late(600ms, 1s);
  EXPECT_EQ(pace_.grace(2500ms), 500ms) << "three intervals of a second";
  EXPECT_EQ(pace_.grace(10s), 0ms);
  late(600ms, 60s);
  EXPECT_EQ(pace_.grace(2500ms), 9500ms);
}

// The controller before had asked for one heartbeat in four seconds, and was killed. A rank that waits that long once
// after it has come back is healthy.
TEST_F(PaceTest, AfterARestartRanksHaveTheLongestSilenceAnybodyMayHaveTold) {
  pace_.restarted(now_);
  EXPECT_EQ(pace_.interval(500ms), 500ms) << "they are asked for what their jobs say";
  late(5ms, 11s);
  EXPECT_EQ(pace_.grace(2500ms), 9500ms);
  EXPECT_EQ(pace_.problem(), "");
  late(5ms, 2s);
  EXPECT_EQ(pace_.grace(2500ms), 0ms);
}

// A crowd takes its time to come back.
TEST_F(PaceTest, TheFreshTimeBeginsAgainWithEachRankThatComesBack) {
  pace_.came_back(now_);
  EXPECT_EQ(pace_.grace(2500ms), 0ms) << "nobody has restarted";
  pace_.restarted(now_);
  late(5ms, 10s);
  pace_.came_back(now_);
  late(5ms, 11s);
  EXPECT_EQ(pace_.grace(2500ms), 9500ms);
  late(5ms, 2s);
  EXPECT_EQ(pace_.grace(2500ms), 0ms);
  late(5ms, Pace::kComeBack);
  pace_.came_back(now_);
  EXPECT_EQ(pace_.grace(2500ms), 0ms) << "its connection broke for another reason";
}

TEST_F(PaceTest, TheIntervalShrinksAfterACalmTime) {
  late(600ms, 4500ms);
  ASSERT_EQ(pace_.floor(), 2s);
  late(5ms, 10s);
  EXPECT_EQ(pace_.state(), Pace::State::kSlowed);
  EXPECT_THAT(pace_.problem(), HasSubstr("was overloaded a moment ago; ranks are asked for one heartbeat in 2.0 s"));
  late(5ms, 6s);
  EXPECT_EQ(pace_.floor(), 1s);
  EXPECT_EQ(pace_.grace(2500ms), 3500ms) << "no rank has been told yet";
  late(5ms, 7s);
  EXPECT_EQ(pace_.grace(2500ms), 500ms);
  late(5ms, 20s);
  EXPECT_EQ(pace_.state(), Pace::State::kFine);
}

TEST_F(PaceTest, ALoadThatStaysDoesNotMakeTheIntervalSwing) {
  int changes = 0;
  // Late at every interval below a second, for an hour.
  for (int i = 0; i < 36'000; ++i) {
    const auto before = pace_.floor();
    pace_.note(before < 1s ? 600ms : 5ms, now_ += 100ms);
    changes += pace_.floor() == before ? 0 : 1;
  }
  EXPECT_LT(changes, 50) << "without the doubled calm: some 450";
}

}  // namespace
}  // namespace ranks
