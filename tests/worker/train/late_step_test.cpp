// Goal: the numbers of a step that a device computes late are those of that step, though the next one is under way.
// Method: the real Stepper on the pretend GPU of tests/fsdp/late_device.h, whose streams run in a drawn order; a run on
// the CPU, where every number is known at once, is the judge.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fsdp/engine/initialize.h"
#include "tests/fsdp/late_device.h"
#include "tests/worker/points_recipe.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step.h"

namespace worker::testing {
namespace {

constexpr std::int64_t kPoints = 24, kWidth = 6;

struct Line : torch::nn::Module, Wrapped {
  Line() : weight(register_parameter("weight", at::empty({kWidth, kWidth}))) {}
  at::Tensor forward(at::Tensor x) const {
    return call(wrapper, std::move(x), [this](const at::Tensor& in) { return in.mm(weight); });
  }
  at::Tensor weight;
};

/// Points that a matrix maps onto themselves.
class Points : public PointsRecipe {
 public:
  Points() : PointsRecipe(kPoints) {
    const fsdp::MetaDeviceGuard without_memory;
    line_ = std::make_shared<Line>();
  }
  std::vector<Part> parts() override {
    points_ = at::arange(kPoints * kWidth, at::kFloat).sin().view({kPoints, kWidth});
    Part part{.module = line_};
    // So that one rank gathers, too, and with a root that is not kept.
    part.options = [](const torch::nn::Module&, fsdp::ShardOptions options) {
      options.reshard_after_forward = true;
      return options;
    };
    return {part};
  }
  std::string first_values(Parts& parts) override {
    parts.trained().load_full_state(
        {{"weight", at::arange(kWidth * kWidth, at::kFloat).cos().view({kWidth, kWidth}) * 0.3}});
    return "a matrix";
  }
  Losses loss(const Batch& batch) override {
    const at::Tensor& points = batch.at("points");
    at::Tensor sum;
    for (std::int64_t i = 0; i < points.size(0); ++i) {
      const at::Tensor point = points.narrow(0, i, 1);
      const at::Tensor square = (line_->forward(point).to(at::kFloat) - point).square().sum();
      sum = sum.defined() ? sum + square : square;
    }
    return {sum};
  }

 protected:
  Batch batch_of(const std::vector<std::int64_t>& samples) const override {
    std::vector<at::Tensor> points;
    for (const std::int64_t sample : samples) points.push_back(points_.narrow(0, sample, 1));
    Batch batch;
    batch.samples = static_cast<std::int64_t>(samples.size());
    batch.weight = static_cast<double>(samples.size());
    batch.tensors["points"] = at::cat(points);
    return batch;
  }

 private:
  std::shared_ptr<Line> line_;
  at::Tensor points_;
};

/// The values that each step tells: step, loss, norm, scale.
using Told = std::vector<std::vector<double>>;

Told told(at::Device device, const RunConfig& config, agent::rank::StopKind* stop = nullptr) {
  at::set_num_threads(1);
  fsdp::MeshOptions options;
  options.device = device;
  fsdp::DeviceMesh mesh(0, 1, fsdp::MakeTransport(), options);
  const BatchSplit split = split_batch(config.train, 1);
  const agent::rank::RankEnvironment environment;
  Listener listener;
  if (stop != nullptr) listener.save_at = static_cast<int>(config.train.steps);
  Points recipe;
  Parts parts(recipe.parts(), mesh, config);
  recipe.first_values(parts);
  LossScale scale(config.train, device);
  Loader loader(recipe.data(Split::kTrain), data::order::Order({.samples = kPoints, .seed = 3}), 0, 1, {.threads = 0});
  Stepper stepper(config, split, environment, listener, recipe, loader, parts, scale);
  EXPECT_EQ(stepper.late(), !device.is_cpu());
  if (config.train.cuda_graph && stepper.late()) stepper.use_graph(late::make_graph());
  stepper.prepare();
  Told out;
  const auto take = [&](std::size_t keep) {
    while (const auto made = stepper.take(keep)) {
      const StepMeasures& m = made->measures;
      out.push_back({static_cast<double>(made->report.step), m.loss, m.grad_norm, m.loss_scale.value_or(-1)});
      EXPECT_GT(made->report.step_ms, 0);
    }
  };
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    const agent::rank::StopKind asked = stepper.make(step);
    if (stop != nullptr) *stop = asked;
    take(stepper.late() ? 1 : 0);
  }
  take(0);
  return out;
}

TEST(LateStep, TellsTheNumbersThatTheCpuTells) {
  const TemporaryFolder folder;
  for (const char* precision : {"bf16", "fp16"}) {
    const RunConfig config = run_of(
        folder, std::string(R"(,"steps":6,"batch_size":4,"micro_batch_size":2,"precision":")") + precision + "\"");
    const Told want = told(at::kCPU, config);
    ASSERT_EQ(want.size(), 6);
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      late::begin(seed);
      ASSERT_EQ(told(late::kDevice, config), want) << precision << ", seed " << seed;
      late::finish();
      EXPECT_GT(late::counts().streams, 1);
    }
  }
}

// The rates have few bits, because a graph takes them in fp32.
TEST(LateStep, TellsTheSameNumbersOfStepsThatAGraphReplays) {
  const TemporaryFolder folder;
  for (const char* precision : {"bf16", "fp16"}) {
    RunConfig config = run_of(
        folder, std::string(R"(,"steps":9,"batch_size":4,"micro_batch_size":2,"cuda_graph":true,"precision":")") +
                    precision + "\"");
    config.train.learning_rate = 0.25;
    config.train.min_learning_rate = 0;
    config.train.schedule = spec::LearningRateSchedule::kLinear;
    config.train.warmup_steps = 1;
    agent::rank::StopKind want_stop = agent::rank::StopKind::kNone;
    const Told want = told(at::kCPU, config, &want_stop);
    ASSERT_EQ(want.size(), 9);
    EXPECT_EQ(want_stop, agent::rank::StopKind::kSave);
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      late::begin(seed);
      agent::rank::StopKind stop = agent::rank::StopKind::kNone;
      ASSERT_EQ(told(late::kDevice, config, &stop), want) << precision << ", seed " << seed;
      late::finish();
      EXPECT_EQ(stop, want_stop);
      EXPECT_EQ(late::counts().replays, 9 - fsdp::StepGraph::kWarmUp);
    }
  }
}

}  // namespace
}  // namespace worker::testing
