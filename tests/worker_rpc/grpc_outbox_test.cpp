#include "rank/grpc_outbox.h"

#include <gtest/gtest.h>

namespace {

using worker::GrpcOutbox;
using worker::StepReport;

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

TEST(Outbox, AStepTravelsWithAllItsNumbers) {
  StepReport report;
  report.step = 7;
  report.loss = 2.5;
  report.tokens_per_s = 1000.5;
  report.step_ms = 12.25;
  report.memory_bytes = 11;
  report.memory_peak_bytes = 13;
  report.bytes_communicated = 17;
  report.learning_rate = 0.125;
  report.grad_norm = 0.75;
  report.validation_loss = 2.25;
  report.at_ms = 19;
  GrpcOutbox outbox;
  outbox.add(report);
  muster::v1::HeartbeatRequest request;
  outbox.fill(request);
  ASSERT_EQ(request.metrics_size(), 1);
  EXPECT_EQ(request.metrics(0).ShortDebugString(),
            "step: 7 loss: 2.5 tokens_per_s: 1000.5 step_ms: 12.25 memory_bytes: 11 memory_peak_bytes: 13 "
            "bytes_communicated: 17 learning_rate: 0.125 grad_norm: 0.75 validation_loss: 2.25 at_ms: 19");
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
