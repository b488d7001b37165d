#include "agent/rank/grpc/grpc_outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "spec/recipes.h"

namespace {

using agent::rank::GrpcOutbox;
using agent::rank::StepReport;
using ::testing::ElementsAre;

const spec::Series kLoss{
    .name = "loss", .unit = "nats", .better = spec::Better::kLower, .over_ranks = spec::OverRanks::kRank0};
const spec::Series kExperts{.name = "experts/used"};

StepReport step(std::int64_t number) {
  StepReport report;
  report.step = number;
  return report;
}

std::vector<std::int64_t> steps_of(const muster::v1::HeartbeatRequest& request) {
  std::vector<std::int64_t> steps;
  for (const auto& metric : request.metrics()) steps.push_back(metric.step());
  return steps;
}

std::vector<std::string> names_of(const muster::v1::HeartbeatRequest& request) {
  std::vector<std::string> names;
  for (const auto& value : request.metrics(0).values()) names.push_back(value.series());
  return names;
}

/// A step of `count` series with long names.
StepReport wide_step(std::int64_t number, std::size_t count) {
  auto report = step(number);
  for (std::size_t i = 0; i < count; ++i) {
    report.values.push_back({std::string(60, 'x') + std::to_string(i), 1});
  }
  return report;
}

TEST(Outbox, HandsOutTheOldestUntilTheyAreAcknowledged) {
  GrpcOutbox outbox;
  for (int i = 1; i <= 3; ++i) outbox.add(step(i));
  muster::v1::HeartbeatRequest first, again, rest;
  const auto batch = outbox.fill(first);
  EXPECT_EQ(steps_of(first), (std::vector<std::int64_t>{1, 2, 3}));
  outbox.fill(again);
  EXPECT_EQ(steps_of(again), steps_of(first));
  outbox.add(step(4));
  outbox.acknowledge(batch, 2, 0);
  outbox.fill(rest);
  EXPECT_EQ(steps_of(rest), (std::vector<std::int64_t>{3, 4}));
}

TEST(Outbox, IsFullBeforeItLosesAnything) {
  GrpcOutbox small, wide;
  std::size_t steps = 0;
  for (; !small.is_full(); ++steps) small.add(step(1));
  EXPECT_EQ(steps, GrpcOutbox::kMaxSteps);
  while (!wide.is_full()) wide.add(wide_step(1, spec::kMostSeries));
  EXPECT_EQ(small.lost() + wide.lost(), 0u);
  muster::v1::HeartbeatRequest request;
  wide.acknowledge(wide.fill(request), 10, 0);
  EXPECT_FALSE(wide.is_full());
}

TEST(Outbox, AStepTravelsWithAllItsNumbers) {
  StepReport report;
  report.step = 7;
  report.values = {{"loss", 2.5},
                   {"validation/loss", 2.25},
                   {"tokens_per_s", 1000.5},
                   {"learning_rate", 0.125},
                   {"grad_norm", 0.75}};
  report.step_ms = 12.25;
  report.memory_bytes = 11;
  report.memory_peak_bytes = 13;
  report.bytes_communicated = 17;
  report.at_ms = 19;
  GrpcOutbox outbox;
  outbox.add(report);
  muster::v1::HeartbeatRequest request;
  outbox.fill(request);
  ASSERT_EQ(request.metrics_size(), 1);
  EXPECT_EQ(request.metrics(0).ShortDebugString(),
            "step: 7 step_ms: 12.25 memory_bytes: 11 memory_peak_bytes: 13 bytes_communicated: 17 at_ms: 19 "
            "values { series: \"loss\" value: 2.5 } values { series: \"validation/loss\" value: 2.25 } "
            "values { series: \"tokens_per_s\" value: 1000.5 } values { series: \"learning_rate\" value: 0.125 } "
            "values { series: \"grad_norm\" value: 0.75 }");
}

TEST(Outbox, WhatIsKnownOfASeriesTravelsWithItsValuesAndNotWithoutThem) {
  GrpcOutbox outbox;
  outbox.declare({kLoss, kExperts});
  muster::v1::HeartbeatRequest idle, busy;
  outbox.add(muster::v1::CheckpointSaved());
  outbox.fill(idle);
  EXPECT_EQ(idle.series_size(), 0);
  outbox.add(step(1));
  outbox.fill(busy);
  ASSERT_EQ(busy.series_size(), 2);
  EXPECT_EQ(busy.series(0).ShortDebugString(), "name: \"loss\" unit: \"nats\" better: \"lower\" over_ranks: \"rank0\"");
  EXPECT_EQ(busy.series(1).ShortDebugString(), "name: \"experts/used\" better: \"neither\" over_ranks: \"mean\"");
}

TEST(Outbox, OnlyRankZeroTellsWhatIsRankZeros) {
  for (const std::uint32_t rank : {0u, 1u, 7u}) {
    GrpcOutbox outbox(rank);
    outbox.declare({kLoss, kExperts});
    auto report = step(1);
    report.values = {{"loss", 2.5}, {"experts/used", 6}, {"nobody/declared/this", 3}};
    outbox.add(report);
    muster::v1::HeartbeatRequest request;
    outbox.fill(request);
    std::vector<std::string> declared;
    for (const auto& series : request.series()) declared.push_back(series.name());
    const std::vector<std::string> both{"loss", "experts/used"}, second{"experts/used"};
    EXPECT_EQ(declared, rank == 0 ? both : second) << rank;
    if (rank == 0) {
      EXPECT_THAT(names_of(request), ElementsAre("loss", "experts/used", "nobody/declared/this"));
    } else {
      EXPECT_THAT(names_of(request), ElementsAre("experts/used", "nobody/declared/this")) << rank;
    }
    EXPECT_EQ(request.metrics(0).values().rbegin()->value(), 3);
  }
}

TEST(Outbox, ALaterDeclarationReplacesTheFormer) {
  GrpcOutbox outbox(1);
  outbox.declare({kLoss});
  outbox.declare({kExperts});
  auto report = step(1);
  report.values = {{"loss", 2.5}};
  outbox.add(report);
  muster::v1::HeartbeatRequest request;
  outbox.fill(request);
  EXPECT_THAT(names_of(request), ElementsAre("loss")) << "nobody has declared it any more";
  ASSERT_EQ(request.series_size(), 1);
  EXPECT_EQ(request.series(0).name(), "experts/used");
}

TEST(Outbox, StepsOfManySeriesFillHeartbeatsThatStaySmall) {
  GrpcOutbox outbox;
  std::int64_t count = 0;
  for (; count < 600; ++count) outbox.add(wide_step(count + 1, spec::kMostSeries));
  EXPECT_FALSE(outbox.fits_one_batch());
  std::vector<std::int64_t> arrived;
  while (outbox.waiting() > 0) {
    muster::v1::HeartbeatRequest request;
    const auto batch = outbox.fill(request);
    ASSERT_FALSE(batch.empty());
    EXPECT_LE(request.ByteSizeLong(), GrpcOutbox::kBatchBytes);
    EXPECT_EQ(batch.full, batch.steps < outbox.waiting());
    for (const auto number : steps_of(request)) arrived.push_back(number);
    outbox.acknowledge(batch, batch.steps, 0);
  }
  EXPECT_EQ(arrived.size(), 600u);
  EXPECT_TRUE(std::ranges::is_sorted(arrived));
  EXPECT_TRUE(outbox.fits_one_batch());
}

TEST(Outbox, AStepHasAsManyValuesAsAJobMayHaveSeries) {
  GrpcOutbox outbox;
  outbox.add(wide_step(1, spec::kMostSeries + 10));
  muster::v1::HeartbeatRequest request;
  outbox.fill(request);
  EXPECT_EQ(request.metrics(0).values_size(), static_cast<int>(spec::kMostSeries));
}

// Goal: a long outage costs a bounded amount of memory, however many series a training reports.
TEST(Outbox, ALongOutageOfManySeriesCostsTheOldestStepsToo) {
  GrpcOutbox outbox;
  const auto one = wide_step(1, spec::kMostSeries);
  const auto most = GrpcOutbox::kMaxBytes / GrpcOutbox::bytes_of(one);
  for (std::size_t i = 0; i < most; ++i) outbox.add(one);
  EXPECT_EQ(outbox.lost(), 0u);
  for (int i = 0; i < 10; ++i) outbox.add(one);
  EXPECT_EQ(outbox.lost(), 10u);
  EXPECT_EQ(outbox.waiting(), most);
}

TEST(Outbox, KeepsAllTheStepsItPromisesOfTheSeriesOfEveryRecipe) {
  for (const auto& recipe : spec::recipes()) {
    StepReport report;
    for (const auto& series : recipe.series) report.values.push_back({series.name, 1});
    EXPECT_LE(GrpcOutbox::kMaxSteps * GrpcOutbox::bytes_of(report), GrpcOutbox::kMaxBytes) << recipe.kind;
  }
}

TEST(Outbox, ABatchIsBoundedAndAnAcknowledgementCannotExceedIt) {
  GrpcOutbox outbox;
  for (int i = 1; i <= 600; ++i) outbox.add(step(i));
  muster::v1::HeartbeatRequest request;
  const auto batch = outbox.fill(request);
  EXPECT_EQ(request.metrics_size(), 512);
  EXPECT_FALSE(outbox.fits_one_batch());
  outbox.acknowledge(batch, 100'000, 0);
  EXPECT_EQ(outbox.waiting(), 88u);
  EXPECT_TRUE(outbox.fits_one_batch());
}

TEST(Outbox, ALongOutageCostsTheOldestStepsAndCountsThem) {
  GrpcOutbox outbox;
  for (std::size_t i = 1; i <= GrpcOutbox::kMaxSteps; ++i) outbox.add(step(static_cast<std::int64_t>(i)));
  EXPECT_EQ(outbox.lost(), 0u);
  muster::v1::HeartbeatRequest under_way, after;
  const auto batch = outbox.fill(under_way);
  for (int i = 0; i < 10; ++i) outbox.add(step(static_cast<std::int64_t>(GrpcOutbox::kMaxSteps) + 1 + i));
  EXPECT_EQ(outbox.lost(), 10u);
  outbox.acknowledge(batch, batch.steps, 0);
  outbox.fill(after);
  EXPECT_EQ(after.metrics(0).step(), 513) << "what was lost while under way is not acknowledged a second time";
}

}  // namespace
