// Goal: the numbers of a step that a device computes late are those of that step, though the next one is under way.
// Method: the real Stepper on the pretend GPU of tests/fsdp/late_device.h, whose streams run in a drawn order; a run on
// the CPU, where every number is known at once, is the judge.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>

#include "fsdp/meta_device.h"
#include "late_device.h"
#include "points_recipe.h"
#include "train/optimizer.h"
#include "train/step.h"
#include "trainer_ranks.h"

namespace worker::testing {
namespace {

constexpr std::int64_t kPoints = 24, kWidth = 6;

struct Line : torch::nn::Module {
  Line() : weight(register_parameter("weight", at::empty({kWidth, kWidth}))) {}
  at::Tensor weight;
};

/// Points that a matrix maps onto themselves.
class Points : public PointsRecipe {
 public:
  Points() : PointsRecipe(kPoints) {
    const fsdp::MetaDeviceGuard without_memory;
    line_ = std::make_shared<Line>();
  }
  std::shared_ptr<torch::nn::Module> make_module() override { return line_; }
  void shard(fsdp::ShardedModel& sharded, const fsdp::ShardOptions& options) override {
    unit_ = sharded.fully_shard(line_, options);
    device_ = sharded.mesh().device();
    points_ = at::arange(kPoints * kWidth, at::kFloat).sin().view({kPoints, kWidth});
  }
  std::string initialize(fsdp::ShardedModel& sharded) override {
    sharded.load_full_state({{"weight", at::arange(kWidth * kWidth, at::kFloat).cos().view({kWidth, kWidth}) * 0.3}});
    return "a matrix";
  }
  at::Tensor loss(const std::vector<std::int64_t>& samples) override { return loss_of(inputs(samples)); }
  std::vector<at::Tensor> inputs(const std::vector<std::int64_t>& samples) override {
    std::vector<at::Tensor> points;
    for (const std::int64_t sample : samples) points.push_back(points_.narrow(0, sample, 1));
    return {at::cat(points)};
  }
  at::Tensor loss_of(const std::vector<at::Tensor>& inputs) override {
    const at::Tensor points = inputs[0].to(device_, /*non_blocking=*/true);
    at::Tensor sum;
    for (std::int64_t i = 0; i < points.size(0); ++i) {
      const at::Tensor point = points.narrow(0, i, 1);
      const at::Tensor out = unit_->run(point, [this](const at::Tensor& in) { return in.mm(line_->weight); });
      const at::Tensor square = (out.to(at::kFloat) - point).square().sum();
      sum = sum.defined() ? sum + square : square;
    }
    return sum;
  }

 private:
  std::shared_ptr<Line> line_;
  std::shared_ptr<fsdp::Unit> unit_;
  at::Device device_ = at::kCPU;
  at::Tensor points_;
};

/// What each step tells: step, loss, norm, scale.
using Told = std::vector<std::vector<double>>;

Told told(at::Device device, const RunConfig& config, StopKind* stop = nullptr) {
  at::set_num_threads(1);
  fsdp::MeshOptions options;
  options.device = device;
  fsdp::DeviceMesh mesh(0, 1, fsdp::MakeTransport(), options);
  const BatchSplit split = split_batch(config.train, 1);
  const RankEnvironment environment;
  Listener listener;
  if (stop != nullptr) listener.save_at = static_cast<int>(config.train.steps);
  Points recipe;
  fsdp::ShardedModel sharded(recipe.make_module(), mesh);
  fsdp::ShardOptions in_half;  // so that one rank gathers, too
  in_half.precision.param_dtype = config.train.precision == schema::Precision::kFp16 ? at::kHalf : at::kBFloat16;
  recipe.shard(sharded, in_half);
  recipe.initialize(sharded);
  const auto optimizer = make_optimizer(config.optimizer, recipe, sharded);
  LossScale scale(config.train, device);
  ShardedSampler sampler(kPoints, 3, 0, 1);
  Stepper stepper(config, split, environment, listener, recipe, sampler, mesh, sharded, *optimizer, scale);
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
    const StopKind asked = stepper.make(step);
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
    config.train.schedule = schema::LearningRateSchedule::kLinear;
    config.train.warmup_steps = 1;
    StopKind want_stop = StopKind::kNone;
    const Told want = told(at::kCPU, config, &want_stop);
    ASSERT_EQ(want.size(), 9);
    EXPECT_EQ(want_stop, StopKind::kSave);
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      late::begin(seed);
      StopKind stop = StopKind::kNone;
      ASSERT_EQ(told(late::kDevice, config, &stop), want) << precision << ", seed " << seed;
      late::finish();
      EXPECT_EQ(stop, want_stop);
      EXPECT_EQ(late::counts().replays, 9 - fsdp::StepGraph::kWarmUp);
    }
  }
}

}  // namespace
}  // namespace worker::testing
