// Goal: a rank is called slow when it is, and a healthy run is left in peace.
#include "controller/ranks/live_ranks.h"

#include <gmock/gmock.h>

#include "tests/controller/service/bench.h"

namespace ranks::testing {
namespace {

constexpr auto kInARow = static_cast<core::Step>(Stragglers::kSteps);

/// One step of four ranks, the third of which takes `third` ms, the others about 100.
void step(Stragglers& stragglers, core::Step number, double third) {
  const double times[] = {100, 99, third, 101};
  for (core::RankNumber rank = 0; rank < 4; ++rank) stragglers.add(rank, number, times[rank]);
}

TEST(Straggler, IsARankAboveTheMedianForFiftyStepsInARow) {
  Stragglers stragglers(4);
  for (core::Step at = 1; at < kInARow; ++at) step(stragglers, at, 150);
  EXPECT_FALSE(stragglers.slowness(2));
  step(stragglers, kInARow, 150);
  ASSERT_TRUE(stragglers.slowness(2));
  EXPECT_NEAR(*stragglers.slowness(2), 1.49, 0.01);
  for (core::RankNumber rank : {0, 1, 3}) EXPECT_FALSE(stragglers.slowness(rank));
  step(stragglers, kInARow + 1, 119);
  EXPECT_FALSE(stragglers.slowness(2)) << "119 of 100.5 ms is the noise of a busy machine";
  EXPECT_FALSE(stragglers.slowness(77)) << "there is no such rank";
}

TEST(Straggler, OneWildStepAmongFiftyIsNone) {
  Stragglers stragglers(4);
  for (core::Step at = 1; at <= 10 * kInARow; ++at) step(stragglers, at, at % 7 == 0 ? 100 : 900);
  EXPECT_FALSE(stragglers.slowness(2));
}

TEST(Straggler, WithTwoRanksNobodyKnowsWhichIsUsual) {
  Stragglers stragglers(2);
  for (core::Step at = 1; at <= 2 * kInARow; ++at) stragglers.add(0, at, 100), stragglers.add(1, at, 1000);
  EXPECT_FALSE(stragglers.slowness(0));
  EXPECT_FALSE(stragglers.slowness(1));
}

// A heartbeat brings the steps since the one before; ranks are heard one after the other.
TEST(Straggler, IsFoundThoughRanksReportManyStepsAtATime) {
  Stragglers stragglers(4);
  for (core::RankNumber rank = 0; rank < 4; ++rank) {
    for (core::Step at = 1; at <= kInARow; ++at) stragglers.add(rank, at, rank == 2 ? 130 : 100);
  }
  EXPECT_NEAR(stragglers.slowness(2).value_or(0), 1.3, 0.01);
  for (core::Step at = 1; at <= kInARow; ++at) stragglers.add(2, at, 100);
  EXPECT_TRUE(stragglers.slowness(2)) << "a report told again changes nothing";
}

TEST(Straggler, ARankThatReportsNothingCostsBoundedMemoryAndAccusesNobody) {
  Stragglers stragglers(4);
  const auto most = 5 * static_cast<core::Step>(Stragglers::kMostWaiting);
  for (core::Step at = 1; at <= most; ++at) stragglers.add(0, at, 100), stragglers.add(1, at, 500);
  EXPECT_FALSE(stragglers.slowness(1));
  for (core::Step at = most + 1; at <= most + kInARow; ++at) step(stragglers, at, 150);
  EXPECT_TRUE(stragglers.slowness(2)) << "it goes on with the next steps";
}

TEST(Straggler, NoTimeIsNoReport) {
  Stragglers stragglers(3);
  for (core::Step at = 1; at <= kInARow; ++at) {
    stragglers.add(0, at, 0), stragglers.add(0, at, std::nan("")), stragglers.add(0, at, 100);
    stragglers.add(1, at, 100), stragglers.add(2, at, 200);
  }
  EXPECT_TRUE(stragglers.slowness(2));
}

TEST(Straggler, IsShownInTheJobsViewUntilItKeepsUp) {
  service::testing::Bench bench;
  const auto id = bench.submit(service::testing::recipe_request("a", 3));
  const auto report = [&](core::Step from, core::Step to, double third) {
    for (core::RankNumber rank = 0; rank < 3; ++rank) {
      auto beat = service::testing::Bench::beat({id, 1}, rank, to);
      for (core::Step at = from; at <= to; ++at) {
        auto& metric = *beat.add_metrics();
        metric.set_step(at);
        metric.set_step_ms(rank == 2 ? third : 100);
      }
      bench.send(beat);
    }
  };
  report(1, kInARow - 1, 140);
  EXPECT_FALSE(bench.job(id).ranks(2).has_slowness());
  report(kInARow, kInARow + 10, 140);
  EXPECT_NEAR(bench.job(id).ranks(2).slowness(), 1.4, 0.01);
  EXPECT_FALSE(bench.job(id).ranks(0).has_slowness());
  report(kInARow + 11, kInARow + 12, 100);
  EXPECT_FALSE(bench.job(id).ranks(2).has_slowness());
}

}  // namespace
}  // namespace ranks::testing
