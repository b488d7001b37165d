// Goal: the scale moves by torch's rule on every rank alike, a step with an infinite gradient changes nothing, and a
// resumed training goes on bit for bit. Method: tables that torch.amp.GradScaler of PyTorch 2.11 has printed, and
// trainings with infinities put into one rank's gradients.
#include "fsdp/optim/grad_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using fsdp::GradScaler;
using fsdp::GradScalerOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using Row = std::pair<double, std::int64_t>;  // scale and growth tracker

/// The rows after steps that found an infinity or not.
std::vector<Row> rows(const std::vector<int>& found_infs, const GradScalerOptions& options) {
  GradScaler scaler(at::kCPU, options);
  std::vector<Row> out;
  for (const int found : found_infs) {
    scaler.update(at::full({1}, found, at::kFloat));
    const fsdp::Json state = scaler.state();
    out.emplace_back(state.at("scale").as_double(), state.at("growth_tracker").as_int());
  }
  return out;
}

TEST(GradScaler, MovesByTheRuleOfTorch) {
  EXPECT_THAT(rows({0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0}, {.growth_interval = 3}),
              ElementsAre(Row{65536, 1}, Row{32768, 0}, Row{32768, 1}, Row{32768, 2}, Row{65536, 0}, Row{65536, 1},
                          Row{32768, 0}, Row{16384, 0}, Row{16384, 1}, Row{16384, 2}, Row{32768, 0}));
  EXPECT_THAT(
      rows({1, 0, 0, 1, 0, 1}, {.init_scale = 100, .growth_factor = 1.5, .backoff_factor = 0.25, .growth_interval = 2}),
      ElementsAre(Row{25, 0}, Row{25, 1}, Row{37.5, 0}, Row{9.375, 0}, Row{9.375, 1}, Row{2.34375, 0}));
}

TEST(GradScaler, NeverGrowsToInfinity) {
  const double most = std::ldexp(1, 127), half = most / 2, quarter = most / 4;
  EXPECT_THAT(
      rows({0, 0, 0, 0, 1, 1, 0}, {.init_scale = half, .growth_interval = 1}),
      ElementsAre(Row{most, 0}, Row{most, 0}, Row{most, 0}, Row{most, 0}, Row{half, 0}, Row{quarter, 0}, Row{half, 0}));
}

TEST(GradScaler, StopsAtItsFloor) {
  EXPECT_THAT(rows({1, 1, 1, 1}, {.init_scale = 8, .min_scale = 2}),
              ElementsAre(Row{4, 0}, Row{2, 0}, Row{2, 0}, Row{2, 0}));
}

TEST(GradScaler, RefusesOptionsThatNeverSettleAndStatesThatItDidNotWrite) {
  const auto error = [](const GradScalerOptions& options) { return error_of([&] { GradScaler(at::kCPU, options); }); };
  EXPECT_THAT(error({.init_scale = 0}), HasSubstr("GradScaler: init_scale 0: want a number above 0"));
  EXPECT_THAT(error({.growth_factor = 1}), HasSubstr("growth_factor 1: want a number above 1"));
  EXPECT_THAT(error({.backoff_factor = 1}), HasSubstr("backoff_factor 1: want a number between 0 and 1"));
  EXPECT_THAT(error({.growth_interval = 0}), HasSubstr("growth_interval 0: want 1 or more"));
  EXPECT_THAT(error({.init_scale = 1, .min_scale = 2}), HasSubstr("min_scale 2: want 0 or more, and at most"));
  GradScaler scaler(at::kCPU);
  const auto load = [&](const char* text) { return error_of([&] { scaler.load(fsdp::Json::parse(text)); }); };
  EXPECT_THAT(load(R"({"scale":1})"), HasSubstr("growth_tracker"));
  EXPECT_THAT(load(R"({"scale":-1,"growth_tracker":0})"), HasSubstr("scale is -1"));
  EXPECT_THAT(load(R"({"scale":1,"growth_tracker":-2})"), HasSubstr("growth_tracker is -2"));
}

TEST(GradScaler, ScalesInTheDtypeOfTheLossAndWithTheScaleOfItsTime) {
  GradScaler scaler(at::kCPU, {.init_scale = 1024});
  at::Tensor weight = at::full({}, 3.0).requires_grad_();
  EXPECT_EQ(scaler.scale(weight.to(at::kHalf)).scalar_type(), at::kHalf);
  const at::Tensor loss = scaler.scale(weight);
  EXPECT_EQ(loss.item<float>(), 3072);
  scaler.update(at::ones({1}));
  loss.backward();
  EXPECT_EQ(weight.grad().item<float>(), 1024);
}

// A power of two scales exactly, so nothing but overflow can make a difference in fp32.
TEST(GradScaler, ChangesNoBitOfATrainingInFp32) {
  for (const int world_size : kWorldSizes) {
    run_thread_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer plain(mesh), scaled(mesh);
      GradScaler scaler(mesh.device(), {.growth_interval = 2});
      for (int step = 0; step < 5; ++step) {
        plain.step(step);
        const at::Tensor loss =
            scaled.model->forward(part_of(tokens_of(step), mesh.rank(), mesh.world_size()).to(mesh.device()));
        scaler.scale(loss).backward();
        const std::int64_t before = mesh.shard().collectives();
        const auto norm = scaler.gradient_norm(scaled.sharded);
        EXPECT_LE(mesh.shard().collectives() - before, 1);
        scaled.optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
        scaler.update(norm.found_inf);
        scaled.sharded.zero_grad();
      }
      EXPECT_EQ(scaler.scale().item<float>(), 65536 * 4);
      const auto wanted = plain.sharded.gather_full_state();
      for (const auto& [name, tensor] : scaled.sharded.gather_full_state())
        EXPECT_TRUE(at::equal(tensor, wanted.at(name))) << name;
    });
  }
}

TEST(GradScaler, MeasuresAndClipsTheGradientsWithoutTheScale) {
  for (const double order : {1.0, 2.0, 3.0, fsdp::kLargestNorm}) {
    run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.accumulate(tokens_of(0));
      const double plain = fsdp::gradient_norm(trainer.sharded, 0, order).norm.item<double>();
      trainer.sharded.zero_grad();
      const GradScaler scaler(mesh.device(), {.init_scale = 4096});
      trainer.accumulate(tokens_of(0), 4096);
      const auto norm = scaler.gradient_norm(trainer.sharded, plain / 2, order);
      EXPECT_EQ(norm.norm.item<double>(), plain);
      EXPECT_THAT(relative(norm.grad_scale.item<double>(), 2 * 4096), Le(1e-5));
    });
  }
}

TEST(GradScaler, KeepsGradientsThatFp16Loses) {
  struct One : torch::nn::Module {
    One() : weight(register_parameter("weight", at::ones({2}))) {}
    at::Tensor weight;
  };
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto gradient = [&](double init_scale) {
      const auto module = std::make_shared<One>();
      fsdp::ShardedModel sharded(module, mesh);
      const auto unit = sharded.fully_shard(
          module, {.precision = {.param_dtype = at::kHalf, .reduce_dtype = at::kHalf, .output_dtype = at::kFloat}});
      const GradScaler scaler(mesh.device(), {.init_scale = init_scale});
      const at::Tensor out = unit->run(at::ones({2}), [&](at::Tensor x) { return x * module->weight; });
      scaler.scale(out.sum() * 1e-8).backward();
      return sharded.gather_full_gradients().at("weight").div(init_scale)[0].item<double>();
    };
    EXPECT_EQ(gradient(1), 0) << "the smallest number of fp16 is 6e-8";
    EXPECT_NEAR(gradient(65536), 1e-8, 1e-11);
  });
}

/// A training in fp16 with a scaler. In some steps one rank's gradient is infinite.
struct ScaledTrainer {
  explicit ScaledTrainer(fsdp::DeviceMesh& mesh)
      : trainer(mesh, in_fp16()), scaler(mesh.device(), {.init_scale = 1024, .growth_interval = 3}) {}

  static fsdp::ShardOptions in_fp16() { return {.precision = {.param_dtype = at::kHalf, .reduce_dtype = at::kHalf}}; }

  double step(int step, bool infinite) {
    auto& mesh = trainer.mesh;
    const at::Tensor loss = trainer.model->forward(part_of(tokens_of(step), mesh.rank(), mesh.world_size()));
    const bool mine = infinite && mesh.rank() == mesh.world_size() - 1;
    scaler.scale(mine ? loss * std::numeric_limits<double>::infinity() : loss).backward();
    const auto norm = scaler.gradient_norm(trainer.sharded, 1.0);
    EXPECT_EQ(norm.found_inf.item<float>(), infinite ? 1 : 0) << step;
    trainer.optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
    scaler.update(norm.found_inf);
    trainer.sharded.zero_grad();
    return loss.item<double>();
  }

  Trainer trainer;
  GradScaler scaler;
};

class ScaledTraining : public Checkpoint {};

TEST_F(ScaledTraining, SkipsHalvesGrowsAndGoesOnFromACheckpointBitForBit) {
  const std::set<int> infinite{1, 6};
  const double scales[] = {1024, 512, 512, 512, 1024, 1024, 512, 512, 512, 1024};
  constexpr int kSaved = 4, kAll = 10;
  for (const int world_size : {1, 2}) {
    std::filesystem::remove_all(options().folder);
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      ScaledTrainer whole(mesh), first(mesh), rest(mesh);
      double best = 1e9;
      for (int step = 0; step < kAll; ++step) {
        const auto before = whole.trainer.sharded.gather_full_state();
        const auto steps_before = whole.trainer.optimizer->parameter_steps();
        const double loss = whole.step(step, infinite.count(step) > 0);
        if (step > 0 && mesh.rank() == 0) best = std::min(best, loss);
        const bool unchanged =
            at::equal(before.at("block0.up"), whole.trainer.sharded.gather_full_state().at("block0.up"));
        EXPECT_EQ(unchanged, infinite.count(step) > 0) << step;
        EXPECT_EQ(whole.trainer.optimizer->parameter_steps() == steps_before, infinite.count(step) > 0) << step;
        EXPECT_EQ(whole.scaler.scale().item<float>(), scales[step]) << step;
      }
      for (int step = 0; step < kSaved; ++step) first.step(step, infinite.count(step) > 0);
      auto state = state_of(kSaved);
      state.extra["grad_scaler"] = first.scaler.state();
      fsdp::Checkpointer(first.trainer.sharded, *first.trainer.optimizer, options()).save(state);
      const auto loaded = fsdp::Checkpointer(rest.trainer.sharded, *rest.trainer.optimizer, options()).load_latest();
      rest.scaler.load(loaded->state.extra.at("grad_scaler"));
      EXPECT_EQ(rest.scaler.state(), first.scaler.state());
      for (int step = kSaved; step < kAll; ++step) {
        rest.step(step, infinite.count(step) > 0);
        EXPECT_EQ(rest.scaler.scale().item<float>(), scales[step]) << step;
      }
      const auto wanted = whole.trainer.sharded.gather_full_state();
      for (const auto& [name, tensor] : rest.trainer.sharded.gather_full_state())
        EXPECT_TRUE(at::equal(tensor, wanted.at(name))) << name;
    });
  }
}

// Nothing is put in: the first scale is far too large for fp16.
TEST(GradScaler, FindsAScaleThatFitsAndThenTrains) {
  for (const int world_size : {1, 2}) {
    run_thread_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, ScaledTrainer::in_fp16());
      GradScaler scaler(mesh.device(), {.init_scale = std::ldexp(1, 24)});
      std::vector<double> losses;
      int skipped = 0;
      for (int step = 0; step < 30; ++step) {
        const at::Tensor loss = trainer.model->forward(part_of(tokens_of(0), mesh.rank(), mesh.world_size()));
        scaler.scale(loss).backward();
        const auto norm = scaler.gradient_norm(trainer.sharded);
        skipped += norm.found_inf.item<float>() != 0;
        trainer.optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
        scaler.update(norm.found_inf);
        trainer.sharded.zero_grad();
        losses.push_back(mesh.control().all_reduce(loss.item<double>()) / mesh.world_size());
      }
      EXPECT_GT(skipped, 0);
      EXPECT_LT(skipped, 15);
      EXPECT_EQ(scaler.scale().item<float>(), std::ldexp(1, 24 - skipped));
      EXPECT_LT(losses.back(), losses.front() - 0.3);
    });
  }
}

}  // namespace
