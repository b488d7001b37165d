#include "worker/train/optimizer_of_run.h"

#include <gtest/gtest.h>

#include <vector>

namespace worker {
namespace {

spec::Training config(spec::LearningRateSchedule kind) {
  spec::Training c;
  c.steps = 110;
  c.warmup_steps = 10;
  c.learning_rate = 1.0;
  c.min_learning_rate = 0.2;
  c.schedule = kind;
  return c;
}

TEST(Schedule, WarmsUpInEqualStepsToTheFullRate) {
  for (const auto kind : {spec::LearningRateSchedule::kCosine, spec::LearningRateSchedule::kLinear,
                          spec::LearningRateSchedule::kConstant}) {
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 0), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 4), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 9), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 10), 1.0);
  }
}

TEST(Schedule, DecaysToTheLeastRate) {
  EXPECT_NEAR(learning_rate(config(spec::LearningRateSchedule::kCosine), 60), 0.6, 1e-12);
  EXPECT_NEAR(learning_rate(config(spec::LearningRateSchedule::kCosine), 35), 0.2 + 0.8 * 0.853553, 1e-6);
  EXPECT_NEAR(learning_rate(config(spec::LearningRateSchedule::kLinear), 35), 0.8, 1e-12);
  for (const auto kind : {spec::LearningRateSchedule::kCosine, spec::LearningRateSchedule::kLinear}) {
    EXPECT_NEAR(learning_rate(config(kind), 110), 0.2, 1e-12);
    EXPECT_NEAR(learning_rate(config(kind), 500), 0.2, 1e-12);
  }
  EXPECT_DOUBLE_EQ(learning_rate(config(spec::LearningRateSchedule::kConstant), 109), 1.0);
}

TEST(Schedule, FallsInStepsAfterTheWarmUpAndNotBelowTheLeastRate) {
  auto c = config(spec::LearningRateSchedule::kStep);
  c.step_size = 25;
  c.gamma = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(c, 4), 0.5) << "the warm-up";
  EXPECT_DOUBLE_EQ(learning_rate(c, 10), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 34), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 35), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(c, 60), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(c, 85), 0.2);
}

TEST(Schedule, OfTheWeightDecayGoesUpOrDownWithoutAWarmUp) {
  const auto c = config(spec::LearningRateSchedule::kCosine);
  spec::Optimizer o;
  o.weight_decay = 0.04;
  o.final_weight_decay = 0.4;
  EXPECT_DOUBLE_EQ(weight_decay(o, c, 100), 0.04) << "constant";
  o.weight_decay_schedule = spec::WeightDecaySchedule::kLinear;
  EXPECT_DOUBLE_EQ(weight_decay(o, c, 0), 0.04);
  EXPECT_NEAR(weight_decay(o, c, 55), 0.22, 1e-12);
  EXPECT_NEAR(weight_decay(o, c, 110), 0.4, 1e-12);
  o.weight_decay_schedule = spec::WeightDecaySchedule::kCosine;
  EXPECT_DOUBLE_EQ(weight_decay(o, c, 0), 0.04);
  EXPECT_NEAR(weight_decay(o, c, 55), 0.22, 1e-12);
  EXPECT_NEAR(weight_decay(o, c, 11), 0.4 - 0.36 * 0.975528, 1e-6);
  EXPECT_NEAR(weight_decay(o, c, 110), 0.4, 1e-12);
}

TEST(Schedule, AWarmUpAsLongAsTheRunNeverDecays) {
  auto c = config(spec::LearningRateSchedule::kCosine);
  c.warmup_steps = c.steps;
  EXPECT_DOUBLE_EQ(learning_rate(c, 109), 1.0);
}

std::vector<std::int64_t> evaluated(const spec::Training& c, double epochs_a_step) {
  std::vector<std::int64_t> out;
  for (std::int64_t step = 1; step <= c.steps; ++step)
    if (evaluates(c, epochs_a_step, step)) out.push_back(step);
  return out;
}

TEST(Schedule, EvaluatesBySteps) {
  spec::Training c;
  c.steps = 10;
  c.validation_every_epochs = 0;
  c.validation_every_steps = 4;
  EXPECT_EQ(evaluated(c, 0.3), (std::vector<std::int64_t>{4, 8, 10}));
  c.validation_every_steps = 0;
  EXPECT_EQ(evaluated(c, 0.3), std::vector<std::int64_t>());
}

TEST(Schedule, EvaluatesAtTheFirstStepThatReachesAnEpoch) {
  spec::Training c;
  c.steps = 10;
  c.validation_every_steps = 0;
  c.validation_every_epochs = 1;
  EXPECT_EQ(evaluated(c, 0.25), (std::vector<std::int64_t>{4, 8, 10}));
  c.validation_every_steps = 5;
  EXPECT_EQ(evaluated(c, 0.25), (std::vector<std::int64_t>{4, 5, 8, 10}));
  c.validation_every_epochs = 0.75;
  EXPECT_EQ(evaluated(c, 0.25), (std::vector<std::int64_t>{3, 5, 6, 9, 10}));
}

}  // namespace
}  // namespace worker
