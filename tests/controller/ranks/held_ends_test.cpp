// Goal: an end that was found and not told yet is judged anew in each round: whatever refutes it meanwhile calls it
// off, and nothing of it stays. Method: the rules are pure; times of our own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks/liveness.h"

namespace ranks {
namespace {

using namespace std::chrono_literals;

constexpr core::Millis kBegin{100'000};

/// Rank 0 of a recipe has made a hundred steps of half a second until kBegin, and stands since. Rounds until its hang
/// is found; when that is.
core::Millis find_hang(AttemptWatch& watch, core::EventBody& end) {
  for (core::Step step = 1; step <= 100; ++step) watch.heard(0, {step, "step"}, kBegin - (100 - step) * 500ms);
  for (auto now = kBegin; now < kBegin + 5min; now += 100ms) {
    watch.heard(0, {100, "step"}, now);
    if (auto found = watch.findings(now); !found.empty()) {
      end = found.front();
      return now;
    }
    watch.suspicion(now, now);
  }
  ADD_FAILURE() << "no hang is found";
  return kBegin;
}

TEST(HeldEnds, OfAHangIsFoundInEachRoundUntilItIsTold) {
  AttemptWatch watch({}, 1, 1, kBegin - 60s);
  core::EventBody end;
  auto now = find_hang(watch, end);
  EXPECT_LE(now, kBegin + 61s) << "the limit is learned, and a minute at the least";
  for (int round = 0; round < 30; ++round) {
    watch.not_told(end);
    watch.heard(0, {100, "step"}, now += 100ms);
    const auto again = watch.findings(now);
    ASSERT_EQ(again.size(), 1U) << round;
    EXPECT_EQ(std::get<core::RankHung>(again[0]).limit, std::get<core::RankHung>(end).limit);
  }
  EXPECT_TRUE(watch.findings(now + 100ms).empty()) << "it counts as told";
  EXPECT_EQ(watch.limits().after_hang("step"), 2 * (now - kBegin)) << "the next attempt waits twice as long";
}

TEST(HeldEnds, OfAHangIsCalledOffByProgressOutputAndADeafMoment) {
  for (const std::string what : {"progress", "output", "deaf", "leaves"}) {
    AttemptWatch watch({}, 1, 1, kBegin - 60s);
    core::EventBody end;
    const auto now = find_hang(watch, end) + 100ms;
    watch.not_told(end);
    if (what == "output") watch.came_out(now);
    if (what == "deaf") watch.fresh_start(now);
    watch.heard(0, {what == "progress" ? 101 : 100, "step", false, what == "leaves"}, now);
    EXPECT_TRUE(watch.findings(now).empty()) << what;
    EXPECT_EQ(watch.limits().after_hang("step"), 0ms) << what << ": nobody was ended";
    const auto over = watch.suspicion(now, now);
    EXPECT_EQ(over && std::holds_alternative<core::SuspicionOver>(*over), what == "progress") << what;
  }
}

/// Four ranks on two nodes of a scheduler; those of "n1" stand for a minute, and those of "n2" are not heard since
/// kBegin.
AttemptWatch with_a_silent_node() {
  AttemptWatch watch({}, 4, 1, kBegin - 60s);
  core::Attempt attempt;
  attempt.state = core::AttemptState::kRunning;
  attempt.queued_at = core::Time{};
  attempt.ranks.resize(4);
  for (std::size_t r = 0; r < 4; ++r) attempt.ranks[r].node = r < 2 ? "n1" : "n2";
  watch.follow(attempt, kBegin - 60s);
  for (core::Step step = 1; step <= 100; ++step) {
    for (core::RankNumber r = 0; r < 4; ++r) watch.heard(r, {step, "step"}, kBegin - (100 - step) * 500ms);
  }
  for (core::RankNumber r : {0U, 1U}) watch.heard(r, {100, "step"}, kBegin + 60s);
  return watch;
}

TEST(HeldEnds, OfALostNodeAndOfASilentRankAreJudgedAnewToo) {
  auto watch = with_a_silent_node();
  for (auto now = kBegin + 60s; now < kBegin + 63s; now += 100ms) {
    for (core::RankNumber r : {0U, 1U}) watch.heard(r, {100, "step"}, now);
    const auto lost = watch.judge(2, executors::Vouch::kUnknown, now);
    ASSERT_TRUE(lost);
    ASSERT_TRUE(std::holds_alternative<core::NodeLost>(*lost));
    watch.not_told(*lost);
  }
  watch.heard(2, {101, "step"}, kBegin + 63s);
  EXPECT_FALSE(watch.judge(3, executors::Vouch::kUnknown, kBegin + 63s)) << "somebody there goes on";
  const auto silent = watch.judge(3, executors::Vouch::kStopped, kBegin + 63s);
  ASSERT_TRUE(silent && std::holds_alternative<core::RankSilent>(*silent));
  watch.not_told(*silent);
  EXPECT_TRUE(watch.judge(3, executors::Vouch::kStopped, kBegin + 63s + 100ms));
  watch.not_told(*silent);
  watch.heard(3, {100, "step"}, kBegin + 64s);
  EXPECT_FALSE(watch.judge(3, executors::Vouch::kAlive, kBegin + 64s));
}

// A survivor that ends because its connection was lost is told after the node that was lost.
TEST(HeldEnds, OfALostNodeIsStillThereForAWitness) {
  auto watch = with_a_silent_node();
  for (core::RankNumber r : {2U, 3U}) watch.note(r, executors::Vouch::kUnknown, kBegin + 60s);
  const auto lost = watch.judge(2, executors::Vouch::kUnknown, kBegin + 60s);
  ASSERT_TRUE(lost);
  EXPECT_FALSE(watch.lost_node(kBegin + 60s));
  watch.not_told(*lost);
  EXPECT_TRUE(watch.lost_node(kBegin + 60s));
}

}  // namespace
}  // namespace ranks
