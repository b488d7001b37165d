// Goal: rates of groups change from step to step, and a rate of 0 keeps values while states go on.
// Method: beside each training one whose rates are given in another way, for every optimizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr int kSlow = 1;

bool is_slow(const std::string& parameter) {
  return parameter.starts_with("block0.");
}

/// Every optimizer, with the groups of `group`.
std::vector<MakeOptimizer> optimizers_with(const fsdp::GroupOf& group) {
  fsdp::AdamWOptions adamw;
  fsdp::AdamOptions adam;
  fsdp::SgdOptions sgd;
  fsdp::LionOptions lion;
  adam.weight_decay = 0.1;
  sgd.momentum = 0.9;
  lion.weight_decay = 0.1;
  adamw.group = adam.group = sgd.group = lion.group = group;
  fsdp::AdamWOptions bf16 = adamw;
  bf16.moments = fsdp::Moments::kBf16;
  return {maker<fsdp::AdamW>(adamw), maker<fsdp::Adam>(adam), maker<fsdp::Sgd>(sgd), maker<fsdp::Lion>(lion),
          maker<fsdp::AdamW>(bf16)};
}

/// block0 has a rate of its own.
std::vector<MakeOptimizer> optimizers_of_two_rates() {
  return optimizers_with([](const fsdp::ParameterInfo& info) {
    fsdp::ParameterGroup group = fsdp::decay_matrices(info);
    if (is_slow(info.name)) group.rate = kSlow;
    return group;
  });
}

void expect_equal_models(Trainer& got, Trainer& want) {
  const auto state = got.sharded.gather_full_state();
  for (const auto& [name, tensor] : want.sharded.gather_full_state())
    EXPECT_TRUE(at::equal(state.at(name), tensor)) << got.optimizer->name() << " " << name;
}

TEST(GroupRates, ScaleTheirParametersAlone) {
  const auto rated = optimizers_of_two_rates();
  const auto scaled = optimizers_with([](const fsdp::ParameterInfo& info) {
    fsdp::ParameterGroup group = fsdp::decay_matrices(info);
    if (is_slow(info.name)) group.lr_scale = 0.25;
    return group;
  });
  for (std::size_t i = 0; i < rated.size(); ++i) {
    run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer got(mesh, {}, 7, rated[i]), want(mesh, {}, 7, scaled[i]);
      EXPECT_THAT(got.optimizer->rates(), ElementsAre(Pair(0, 1.0), Pair(kSlow, 1.0)));
      got.optimizer->set_rate(kSlow, 0.25);
      for (int step = 0; step < 3; ++step) got.step(step), want.step(step);
      expect_equal_models(got, want);
    });
  }
}

TEST(GroupRates, FollowEachStep) {
  for (const MakeOptimizer& make : optimizers_of_two_rates()) {
    run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer got(mesh, {}, 7, make), want(mesh, {}, 7, make);
      int step = 0;
      for (const double scale : {0.5, 2.0, 0.125, 1.0}) {
        got.optimizer->set_rate(0, scale);
        got.optimizer->set_rate(kSlow, scale);
        got.step(step, 1e-2);
        want.step(step++, 1e-2 * scale);
      }
      expect_equal_models(got, want);
    });
  }
}

TEST(GroupRates, ScaleARateOnTheDeviceToo) {
  fsdp::AdamWOptions rated, scaled;
  rated.group = [](const fsdp::ParameterInfo& info) {
    fsdp::ParameterGroup group;
    group.lr_scale = 0.5;
    group.rate = is_slow(info.name) ? kSlow : 0;
    return group;
  };
  scaled.group = [](const fsdp::ParameterInfo& info) {
    fsdp::ParameterGroup group;
    group.lr_scale = is_slow(info.name) ? 0.125 : 0.5;
    return group;
  };
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer got(mesh, {}, 7, maker<fsdp::AdamW>(rated)), want(mesh, {}, 7, maker<fsdp::AdamW>(scaled));
    got.optimizer->set_rate(kSlow, 0.25);
    for (Trainer* trainer : {&got, &want}) {
      trainer->accumulate(tokens_of(0));
      trainer->optimizer->step(at::full({}, 1e-2));
      trainer->sharded.zero_grad();
    }
    expect_equal_models(got, want);
  });
}

TEST(GroupRates, OfZeroKeepValuesWhileStatesGoOn) {
  for (const MakeOptimizer& make : optimizers_of_two_rates()) {
    for (const int world_size : {1, 3}) {
      run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
        Trainer trainer(mesh, {}, 7, make);
        const std::string name = trainer.optimizer->name();
        const auto before = trainer.sharded.gather_full_state();
        trainer.optimizer->set_rate(kSlow, 0);
        trainer.step(0);
        trainer.step(1);
        const auto held = trainer.sharded.gather_full_state();
        for (const auto& [parameter, value] : before) {
          const bool stays = is_slow(parameter) || parameter.ends_with("frozen") || parameter.ends_with("unused");
          EXPECT_EQ(at::equal(held.at(parameter), value), stays) << name << " " << parameter;
        }
        const fsdp::Segment& slow = trainable_part(*trainer.sharded.units()[0]);
        for (const std::string& state : trainer.optimizer->state_names())
          EXPECT_GT(slow.states().at(state).abs().max().item<double>(), 0) << name << " " << state;
        EXPECT_EQ(trainer.optimizer->steps(0, 0), 2) << name;

        trainer.optimizer->set_rate(kSlow, 1);
        trainer.step(2);
        EXPECT_FALSE(at::equal(trainer.sharded.gather_full_state().at("block0.up"), before.at("block0.up"))) << name;
      });
    }
  }
}

TEST(GroupRates, ThatCannotBeMeantAreErrors) {
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  Trainer trainer(alone, {}, 7, optimizers_of_two_rates()[0]);
  EXPECT_THAT(error_of([&] { trainer.optimizer->set_rate(2, 1); }),
              HasSubstr("optimizer adamw: no parameter has rate 2; give it to a parameter's group first"));
  for (const double scale : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(error_of([&] { trainer.optimizer->set_rate(kSlow, scale); }), HasSubstr("of rate 1: want 0 or more"));
}

}  // namespace
