// Goal: an end that was found and not told yet is judged anew in each round: whatever refutes it meanwhile calls it
// off, and nothing of it stays. Method: the rules are pure; times of our own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/controller/ranks/on_nodes.h"

namespace ranks {
namespace {

/// Rank 0 of a recipe has made a hundred steps of half a second until kStart, and stands since. Rounds until its hang
/// is found; when that is.
core::Millis find_hang(AttemptWatch& watch, core::EventBody& end) {
  for (core::Step step = 1; step <= 100; ++step) watch.heard(0, {step, "step"}, kStart - (100 - step) * 500ms);
  for (auto now = kStart; now < kStart + 5min; now += 100ms) {
    watch.heard(0, {100, "step"}, now);
    if (auto found = watch.findings(now); !found.empty()) {
      end = found.front();
      return now;
    }
    watch.suspicion(now, now);
  }
  ADD_FAILURE() << "no hang is found";
  return kStart;
}

TEST(HeldEnds, OfAHangIsFoundInEachRoundUntilItIsTold) {
  AttemptWatch watch({}, 1, 1, kStart - 60s);
  core::EventBody end;
  auto now = find_hang(watch, end);
  EXPECT_LE(now, kStart + 61s) << "the limit is learned, and a minute at the least";
  for (int round = 0; round < 30; ++round) {
    watch.not_told(end);
    watch.heard(0, {100, "step"}, now += 100ms);
    const auto again = watch.findings(now);
    ASSERT_EQ(again.size(), 1U) << round;
    EXPECT_EQ(std::get<core::RankHung>(again[0]).limit, std::get<core::RankHung>(end).limit);
  }
  EXPECT_TRUE(watch.findings(now + 100ms).empty()) << "it counts as told";
  EXPECT_EQ(watch.limits().after_hang("step"), 2 * (now - kStart)) << "the next attempt waits twice as long";
}

TEST(HeldEnds, OfAHangIsCalledOffByProgressOutputAndADeafMoment) {
  for (const std::string what : {"progress", "output", "deaf", "leaves"}) {
    AttemptWatch watch({}, 1, 1, kStart - 60s);
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
/// kStart.
AttemptWatch with_a_silent_node() {
  auto watch = on_nodes();
  stand(watch, {0, 1}, kStart + 60s);
  return watch;
}

TEST(HeldEnds, OfALostNodeAndOfASilentRankAreJudgedAnewToo) {
  auto watch = with_a_silent_node();
  for (auto now = kStart + 60s; now < kStart + 63s; now += 100ms) {
    for (core::RankNumber r : {0U, 1U}) watch.heard(r, {100, "step"}, now);
    const auto lost = watch.judge(2, executors::Vouch::kUnknown, now);
    ASSERT_TRUE(lost);
    ASSERT_TRUE(std::holds_alternative<core::NodeLost>(*lost));
    watch.not_told(*lost);
  }
  watch.heard(2, {101, "step"}, kStart + 63s);
  EXPECT_FALSE(watch.judge(3, executors::Vouch::kUnknown, kStart + 63s)) << "somebody there goes on";
  const auto silent = watch.judge(3, executors::Vouch::kStopped, kStart + 63s);
  ASSERT_TRUE(silent && std::holds_alternative<core::RankSilent>(*silent));
  watch.not_told(*silent);
  EXPECT_TRUE(watch.judge(3, executors::Vouch::kStopped, kStart + 63s + 100ms));
  watch.not_told(*silent);
  watch.heard(3, {100, "step"}, kStart + 64s);
  EXPECT_FALSE(watch.judge(3, executors::Vouch::kAlive, kStart + 64s));
}

// A survivor that ends because its connection was lost is told after the node that was lost.
TEST(HeldEnds, OfALostNodeIsStillThereForAWitness) {
  auto watch = with_a_silent_node();
  for (core::RankNumber r : {2U, 3U}) watch.note(r, executors::Vouch::kUnknown, kStart + 60s);
  const auto lost = watch.judge(2, executors::Vouch::kUnknown, kStart + 60s);
  ASSERT_TRUE(lost);
  EXPECT_FALSE(watch.lost_node(kStart + 60s));
  watch.not_told(*lost);
  EXPECT_TRUE(watch.lost_node(kStart + 60s));
}

}  // namespace
}  // namespace ranks
