#include "controller/executors/slurm/poller.h"

#include "tests/controller/executors/slurm/follow.h"

namespace executors::on_slurm {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr core::Time kWall(1'795'000'000'300ms);

/// Slurm says whole seconds.
::slurm::Time said(core::Time time) {
  return std::chrono::floor<std::chrono::seconds>(time);
}

TEST(SlurmClock, IsOursUntilSlurmHasSaidAnotherTime) {
  SlurmClock clock;
  EXPECT_EQ(clock.theirs(kWall), kWall);
  for (const auto off : {0ms, 400ms, -200ms}) {
    clock.asked(said(kWall + off), kWall, kWall + 30ms, 0ms);
    EXPECT_EQ(clock.ahead(), 0ms) << "as far as whole seconds tell";
  }
  clock.asked(said(kWall + 5s), kWall, kWall + 6s, 0ms);
  EXPECT_EQ(clock.ahead(), 0ms) << "it took so long to answer";
}

TEST(SlurmClock, TellsTheOthersClockToTheSecond) {
  for (const core::Millis ahead : {120s, -120s, 3s, -3s}) {
    SlurmClock clock;
    clock.asked(said(kWall + ahead), kWall, kWall + 30ms, 0ms);
    EXPECT_LE(std::chrono::abs(clock.ahead() - ahead), 1s) << ahead.count();
    EXPECT_LE(std::chrono::abs(clock.theirs(kWall) - (kWall + ahead)), 1s);
    EXPECT_EQ(clock.ours(clock.theirs(kWall)), kWall);
  }
}

TEST(SlurmClock, WhatTellsNothingChangesNothingAndIsAskedAgainSoon) {
  SlurmClock clock;
  clock.asked(said(kWall + 120s), kWall, kWall, 0ms);
  const auto ahead = clock.ahead();
  clock.asked(std::nullopt, kWall, kWall, 0ms);
  clock.asked(said(kWall), kWall, kWall + SlurmClock::kQuick + 1ms, 0ms);
  clock.asked(said(kWall), kWall, kWall - 1ms, 0ms);
  EXPECT_EQ(clock.ahead(), ahead);
  EXPECT_FALSE(clock.is_due(kWall, 0ms));
  EXPECT_TRUE(clock.is_due(kWall + SlurmClock::kAskAgain, SlurmClock::kAskAgain));
}

TEST(SlurmClock, IsAskedAtFirstNowAndThenAndWhenOursWasSet) {
  SlurmClock clock;
  EXPECT_TRUE(clock.is_due(kWall, 7s));
  clock.asked(said(kWall), kWall, kWall, 7s);
  EXPECT_FALSE(clock.is_due(kWall + 60s, 67s));
  EXPECT_TRUE(clock.is_due(kWall + SlurmClock::kFresh, 7s + SlurmClock::kFresh));
  for (const core::Millis set : {60s, -60s}) EXPECT_TRUE(clock.is_due(kWall + 60s + set, 67s));
}

// Two minutes are as long as four saves.
TEST(SlurmClock, RanksSaveAtTheSameMomentWhateverOurClockSays) {
  for (const core::Millis ahead : {120s, -120s}) {
    SCOPED_TRACE(ahead.count());
    Following f({{7, 1}, 2, 1, false, false, 30s});
    f.under_way();
    SlurmClock clock;
    clock.asked(said(f.wall() + ahead), f.wall(), f.wall(), f.now);
    f.job.time_limit = 600s;
    f.job.ends = said(f.wall() + ahead + 300s);
    f.slurm_says("RUNNING", "None", clock.theirs(f.wall()));
    EXPECT_THAT(f.after(268s).facts(), IsEmpty());
    EXPECT_THAT(f.after(4s).facts(), ElementsAre("stopping timed_out save"));
  }
}

}  // namespace
}  // namespace executors::on_slurm
