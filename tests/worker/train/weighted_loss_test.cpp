// Goal: the mean loss counts each target once, however targets are spread over ranks and micro-batches, and a step
// whose gradients are not finite changes nothing. Method: a recipe of points and a line, in which samples weigh
// differently and one may be poisoned; plain autograd is the judge.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/usage_error.h"
#include "data/order/order.h"
#include "tests/worker/points_recipe.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

constexpr std::int64_t kPoints = 16;

double weight_of(std::int64_t sample) {
  return static_cast<double>(sample % 4);  // every fourth point is masked
}

at::Tensor points_of(const std::vector<std::int64_t>& samples) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(samples.size()), 2});
  for (std::size_t i = 0; i < samples.size(); ++i) {
    out[static_cast<std::int64_t>(i)][0] = std::sin(static_cast<double>(samples[i]));
    out[static_cast<std::int64_t>(i)][1] = std::cos(static_cast<double>(samples[i]));
  }
  return out;
}

/// The sum of the weighted squares of what the line misses.
at::Tensor squares(const at::Tensor& line, const std::vector<std::int64_t>& samples) {
  at::Tensor sum = at::zeros({});
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double wanted = static_cast<double>(samples[i] % 5);
    sum = sum + (line[static_cast<std::int64_t>(i)][0] - wanted).pow(2) * weight_of(samples[i]);
  }
  return sum;
}

torch::nn::Linear line() {
  torch::nn::Linear module(2, 1);
  const torch::NoGradGuard no_grad;
  module->weight.fill_(0.25);
  module->bias.fill_(-0.5);
  return module;
}

/// The line as a unit.
struct WrappedLine : torch::nn::Module, Wrapped {
  WrappedLine() : inner(register_module("line", line())) {}
  at::Tensor forward(at::Tensor x) {
    return call(wrapper, std::move(x), [this](const at::Tensor& in) { return inner->forward(in); });
  }
  torch::nn::Linear inner;
};

double weight_of_all(const std::vector<std::int64_t>& samples) {
  double sum = 0;
  for (const auto sample : samples) sum += weight_of(sample);
  return sum;
}

class Points : public PointsRecipe {
 public:
  explicit Points(std::int64_t poisoned) : PointsRecipe(kPoints, /*validation=*/7), poisoned_(poisoned) {}
  std::vector<Part> parts() override { return {{.module = line_}}; }
  std::string first_values(Parts&) override { return "a line"; }
  Losses loss(const Batch& batch) override {
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < batch.samples; ++i) samples.push_back(batch.at("samples")[i].item<std::int64_t>());
    at::Tensor sum = squares(line_->forward(batch.at("points")), samples);
    if (std::ranges::count(samples, poisoned_) > 0) sum = sum * std::numeric_limits<double>::infinity();
    return {sum};
  }

 protected:
  Batch batch_of(const std::vector<std::int64_t>& samples) const override {
    Batch batch;
    batch.samples = static_cast<std::int64_t>(samples.size());
    batch.weight = weight_of_all(samples);
    batch.tensors["points"] = points_of(samples);
    batch.tensors["samples"] = at::tensor(samples);
    return batch;
  }

 private:
  const std::int64_t poisoned_;
  std::shared_ptr<WrappedLine> line_ = std::make_shared<WrappedLine>();
};

MakeRecipe points(std::int64_t poisoned = -1) {
  return [poisoned](const RunConfig&) { return std::make_unique<Points>(poisoned); };
}

std::vector<double> values(const std::vector<agent::rank::StepReport>& steps, const char* series) {
  std::vector<double> out;
  for (const auto& step : steps) out.push_back(value_of(step.values, series).value_or(-1));
  return out;
}

TEST(WeightedLoss, CountsEachTargetOnceHoweverTheBatchIsSplit) {
  std::vector<std::vector<double>> losses, norms, validations;
  for (const auto& [ranks, micro] : {std::pair{1, 8}, {1, 2}, {2, 4}, {2, 1}, {4, 1}}) {
    const TemporaryFolder folder;
    std::vector<Listener> listeners(static_cast<std::size_t>(ranks));
    train(run_of(folder, R"(,"steps":4,"clip_norm":0,"batch_size":8,"validation_every_steps":1,"micro_batch_size":)" +
                             std::to_string(micro)),
          listeners, 1, points());
    losses.push_back(values(listeners[0].steps, "loss"));
    norms.push_back(values(listeners[0].steps, "grad_norm"));
    validations.push_back(values(listeners[0].steps, "validation/loss"));
  }
  const auto near = [](const std::vector<double>& wanted) {
    return ::testing::Pointwise(::testing::DoubleNear(1e-5), wanted);
  };
  for (std::size_t i = 1; i < losses.size(); ++i) {
    EXPECT_THAT(losses[i], near(losses[0])) << "split " << i;
    EXPECT_THAT(norms[i], near(norms[0])) << "split " << i;
    EXPECT_THAT(validations[i], near(validations[0])) << "split " << i;
  }
  // The judge: the first step's batch as a whole.
  data::order::Order order({.samples = kPoints, .seed = 0});
  std::vector<std::int64_t> batch;
  for (std::int64_t position = 0; position < 8; ++position) batch.push_back(order.at(position));
  auto judge = line();
  const at::Tensor mean = squares(judge->forward(points_of(batch)), batch) / weight_of_all(batch);
  mean.backward();
  EXPECT_NEAR(losses[0][0], mean.item<double>(), 1e-5);
  const double norm =
      std::sqrt(judge->weight.grad().pow(2).sum().item<double>() + judge->bias.grad().pow(2).sum().item<double>());
  EXPECT_NEAR(norms[0][0], norm, 1e-5);
}

TEST(SkippedSteps, OnePoisonedBatchIsSkippedAndTold) {
  const TemporaryFolder folder;
  const auto config = run_of(folder, R"(,"steps":8,"batch_size":4)");
  std::vector<Listener> whole(2);
  whole[0].save_at = 5;
  EXPECT_EQ(train(config, whole, 1, points(3))[0].code, spec::kExitRequeue);
  const auto losses = values(whole[0].steps, "loss");
  const auto is_bad = [](double value) { return !std::isfinite(value); };
  const auto bad = std::ranges::find_if(losses, is_bad) - losses.begin();
  ASSERT_LT(bad, 4) << "each point comes once in four steps";
  const auto skipped = values(whole[0].steps, "skipped_steps");
  EXPECT_EQ(skipped[static_cast<std::size_t>(bad)], 1);
  if (bad > 0) {
    EXPECT_EQ(skipped[0], -1) << "nothing is told before the first";
  }
  std::vector<Listener> rest(2);
  EXPECT_EQ(train(config, rest, 2, points(3))[0].code, spec::kExitDone);
  EXPECT_EQ(values(rest[0].steps, "skipped_steps").back(), 2) << "a resume goes on counting";
}

TEST(SkippedSteps, ASkippedStepChangesNoWeight) {
  const TemporaryFolder folder;
  std::vector<Listener> two(1);
  train(run_of(folder, R"(,"steps":2,"batch_size":16,"validation_every_steps":1)"), two, 1, points(3));
  const auto validations = values(two[0].steps, "validation/loss");
  EXPECT_EQ(validations[0], validations[1]) << "every batch holds the poisoned point, so nothing is learned";
  EXPECT_THAT(values(two[0].steps, "skipped_steps"), ::testing::ElementsAre(1, 2));
}

TEST(SkippedSteps, TooManyInARowEndTheRunOnEveryRank) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  std::vector<std::string> errors(2);
  for (std::size_t rank = 0; rank < 2; ++rank)
    ranks[rank].on_failure = [&, rank](const auto& text) { errors[rank] = text; };
  train(run_of(folder, R"(,"steps":8,"batch_size":16,"max_skipped_steps":2)"), ranks, 1, points(3));
  for (const auto& error : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr("step 3 is skipped: the loss is inf"));
    EXPECT_THAT(error, ::testing::HasSubstr("in 3 steps in a row, and train.max_skipped_steps is 2"));
  }
  EXPECT_EQ(ranks[0].steps.size(), 2u);
}

TEST(SkippedSteps, ThatOnlyLowerTheScaleOfTheLossAreNoRow) {
  SkippedSteps skipped(0);
  const double infinity = std::numeric_limits<double>::infinity();
  for (int step = 1; step <= 20; ++step) EXPECT_TRUE(skipped.note(step, 2.0, infinity, /*scale_falls=*/true));
  EXPECT_EQ(skipped.total(), 20);
  EXPECT_EQ(skipped.line(),
            "step 20 is skipped: the loss is 2.000000 and the gradient's norm inf; the scale of the loss falls");
  EXPECT_THROW(skipped.note(21, infinity, infinity, true), base::UsageError)
      << "no scale helps against an infinite loss";
  EXPECT_THROW(SkippedSteps(0).note(1, 2.0, infinity, false), base::UsageError) << "the scale is at its floor";
}

// The first gradients overflow fp16 with torch's first scale.
TEST(LossScale, FallsUntilItFitsAndAResumeGoesOnWithItBitForBit) {
  for (const std::size_t ranks : {1u, 2u}) {
    const TemporaryFolder folder;
    const std::string fp16 = R"(,"steps":10,"batch_size":8,"precision":"fp16","max_skipped_steps":0)";
    std::vector<Listener> whole(ranks), first(ranks), rest(ranks);
    EXPECT_EQ(train(run_of(folder, fp16, "", "whole"), whole, 1, points())[0].code, spec::kExitDone);
    const auto scales = values(whole[0].steps, "loss_scale"), skipped = values(whole[0].steps, "skipped_steps");
    EXPECT_EQ(scales.front(), 65536);
    EXPECT_LT(scales.back(), 65536);
    EXPECT_EQ(scales.back(), std::ldexp(65536, -static_cast<int>(skipped.back())));
    const auto losses = values(whole[0].steps, "loss");
    EXPECT_LT(losses.back(), losses.front());

    const auto config = run_of(folder, fp16, "", "parts");
    first[0].save_at = 6;
    EXPECT_EQ(train(config, first, 1, points())[0].code, spec::kExitRequeue);
    EXPECT_EQ(train(config, rest, 2, points())[0].code, spec::kExitDone);
    for (const char* series : {"loss", "loss_scale", "grad_norm", "skipped_steps"}) {
      auto parts = values(first[0].steps, series), wanted = values(whole[0].steps, series);
      const auto more = values(rest[0].steps, series);
      parts.insert(parts.end(), more.begin(), more.end());
      const auto is_nan = [](double value) { return std::isnan(value); };  // a NaN equals nothing
      for (auto* list : {&parts, &wanted}) std::ranges::replace_if(*list, is_nan, -2);
      EXPECT_EQ(parts, wanted) << series;
    }
  }
}

TEST(LossScale, OfOtherPrecisionsIsNotThere) {
  const TemporaryFolder folder;
  std::vector<Listener> one(1);
  train(run_of(folder, R"(,"steps":1,"precision":"bf16")"), one, 1, points());
  EXPECT_THAT(values(one[0].steps, "loss_scale"), ::testing::ElementsAre(-1));
}

TEST(SkippedSteps, AreCountedInARow) {
  SkippedSteps skipped(1, 5);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(skipped.note(1, 2.0, 1.0));
  EXPECT_TRUE(skipped.note(2, nan, nan));
  EXPECT_FALSE(skipped.note(3, 2.0, 1.0));
  EXPECT_TRUE(skipped.note(4, 2.0, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(skipped.total(), 7);
  EXPECT_THROW(skipped.note(5, nan, nan), base::UsageError);
}

}  // namespace
}  // namespace worker::testing
