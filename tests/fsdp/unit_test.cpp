// Goal: a unit takes any inputs, graphs and orders of calls, and refuses by name what it cannot shard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"

namespace {

using ::testing::HasSubstr;
using ::testing::Le;

struct TwoInputs : torch::nn::Module {
  TwoInputs() : weight(register_parameter("weight", at::full({4}, 2.0))) {}
  at::Tensor weight;
};

TEST(Unit, PassesSeveralInputsAndOutputsAndUndefinedOnes) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<TwoInputs>();
    fsdp::ShardedModel sharded(module, mesh);
    const auto unit = sharded.fully_shard(module);
    at::Tensor a = at::ones({4}).requires_grad_(), b = at::full({4}, 3.0).requires_grad_();
    const auto outputs = unit->run_list({a, b, at::Tensor(), at::ones({1}, at::kLong)}, [&](auto in) {
      EXPECT_FALSE(in[2].defined());
      EXPECT_EQ(in[3].scalar_type(), at::kLong);
      return std::vector<at::Tensor>{in[0] * module->weight, in[1] * in[1], at::Tensor()};
    });
    (outputs[0].sum() + outputs[1].sum()).backward();
    EXPECT_TRUE(at::equal(a.grad(), at::full({4}, 2.0)));
    EXPECT_TRUE(at::equal(b.grad(), at::full({4}, 6.0)));
    EXPECT_TRUE(at::equal(sharded.gather_full_gradients().at("weight"), at::ones({4})));
  });
}

TEST(Unit, ReducesTheGradientsThatNoInputLeadsTo) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<TwoInputs>();
    fsdp::ShardedModel sharded(module, mesh);
    const auto unit = sharded.fully_shard(module);
    const at::Tensor out =
        unit->run(at::full({4}, 1.0 + mesh.rank()), [&](at::Tensor x) { return x * module->weight; });
    out.sum().backward();
    EXPECT_TRUE(at::equal(sharded.gather_full_gradients().at("weight"), at::full({4}, 1.5)));
  });
}

/// The sum of x w^2, by two runs of the unit.
at::Tensor run_twice(fsdp::Unit& unit, const TwoInputs& module, const at::Tensor& x) {
  const auto times_weight = [&](at::Tensor in) { return in * module.weight; };
  return unit.run(unit.run(x, times_weight), times_weight).sum();
}

TEST(EveryWorldSize, RunAUnitTwiceThoughItsFirstInputNeedsNoGradient) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<TwoInputs>();
      fsdp::ShardedModel sharded(module, mesh);
      const auto unit = sharded.fully_shard(module);
      const at::Tensor x = at::full({4}, 1.0 + mesh.rank());
      run_twice(*unit, *module, x).backward();
      // The derivative of x w^2 by w is 2 x w. Its mean over ranks is 4 x.
      const at::Tensor once = at::full({4}, 2.0 * (1 + mesh.world_size()));
      EXPECT_TRUE(at::equal(sharded.gather_full_gradients().at("weight"), once));
      if (mesh.world_size() > 1) {
        EXPECT_EQ(unit->gathers(), 3) << "one a run, one for backward";
      }
    });
  }
}

TEST(EveryWorldSize, RunTwoGraphsForwardBeforeEitherGoesBackward) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<TwoInputs>();
      fsdp::ShardedModel sharded(module, mesh);
      const auto unit = sharded.fully_shard(module);
      const at::Tensor first = run_twice(*unit, *module, at::ones({4}).requires_grad_());
      const at::Tensor second = run_twice(*unit, *module, at::ones({4}).requires_grad_());
      first.backward();
      second.backward();
      EXPECT_TRUE(at::equal(sharded.gather_full_gradients().at("weight"), at::full({4}, 8.0)));
      EXPECT_EQ(sharded.memory().unreduced_bytes_now, 0);
    });
  }
}

struct TwoBranches : torch::nn::Module {
  TwoBranches() {
    left = register_module("left", std::make_shared<TwoInputs>());
    right = register_module("right", std::make_shared<TwoInputs>());
  }
  std::shared_ptr<TwoInputs> left, right;
};

TEST(EveryWorldSize, ReduceWhatOnlyAnEarlierMicroBatchReached) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<TwoBranches>();
      fsdp::ShardedModel sharded(module, mesh);
      const auto left = sharded.fully_shard(module->left), right = sharded.fully_shard(module->right);
      const at::Tensor x = at::full({4}, 1.0 + mesh.rank());
      sharded.set_requires_gradient_sync(false);
      left->run(x, [&](at::Tensor in) { return in * module->left->weight; }).sum().backward();
      sharded.set_requires_gradient_sync(true);
      right->run(x, [&](at::Tensor in) { return in * module->right->weight; }).sum().backward();
      const auto gradients = sharded.gather_full_gradients();
      ASSERT_EQ(gradients.count("left.weight"), 1u);
      EXPECT_TRUE(at::equal(gradients.at("left.weight"), at::full({4}, (1 + mesh.world_size()) / 2.0)));
      EXPECT_TRUE(at::equal(gradients.at("right.weight"), gradients.at("left.weight")));
      EXPECT_EQ(sharded.memory().unreduced_bytes_now, 0);
    });
  }
}

TEST(EveryWorldSize, TrainOnAfterABackwardThatThrew) {
  for (const int world_size : kWorldSizes) {
    Reference reference;
    const double truth = (reference.step(0), reference.step(1));
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.step(0);
      const auto inner = trainer.model->blocks[0]->wrap;
      trainer.model->blocks[0]->wrap = [&](at::Tensor x, const std::function<at::Tensor(at::Tensor)>& forward) {
        return inner(x, [&](at::Tensor in) {
          const at::Tensor out = forward(in);
          out.register_hook([](const at::Tensor&) { throw std::runtime_error("no memory for this batch"); });
          return out;
        });
      };
      EXPECT_THAT(error_of([&] { trainer.accumulate(tokens_of(2)); }), HasSubstr("no memory for this batch"));
      trainer.model->blocks[0]->wrap = inner;
      trainer.sharded.zero_grad();
      EXPECT_THAT(relative(trainer.step(1), truth), Le(1e-5));
      const auto state = trainer.sharded.gather_full_state();
      for (const auto& item : reference.model->named_parameters())
        EXPECT_THAT(distance(state.at(item.key()), item.value()), Le(1e-4)) << item.key();
    });
  }
}

TEST(Unit, RefusesAGradientThatComesFromOutsideOfRun) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<TwoInputs>();
    fsdp::ShardedModel sharded(module, mesh);
    fsdp::ShardOptions options;
    options.reshard_after_forward = false;
    const auto unit = sharded.fully_shard(module, options);
    unit->wait_unsharded();
    // The parameter is used before the unit runs, so the backward of this use comes after the unit's backward has
    // ended.
    const at::Tensor outside = module->weight * 1;
    const at::Tensor out = unit->run(outside, [&](at::Tensor x) { return x * module->weight; });
    EXPECT_THAT(error_of([&] { out.sum().backward(); }),
                HasSubstr("the gradient of weight came after the unit's backward had ended"));
  });
}

struct Shared : torch::nn::Module {
  Shared() {
    left = register_module("left", std::make_shared<TwoInputs>());
    right = register_module("right", std::make_shared<torch::nn::Module>());
    right->register_parameter("tied", left->weight);
  }
  std::shared_ptr<TwoInputs> left;
  std::shared_ptr<torch::nn::Module> right;
};

TEST(FullyShard, RefusesAParameterInTwoUnits) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<Shared>();
    fsdp::ShardedModel sharded(module, mesh);
    sharded.fully_shard(module->left);
    const std::string error = error_of([&] { sharded.fully_shard(module->right); });
    EXPECT_THAT(error, HasSubstr("parameter right.tied of unit right"));
    EXPECT_THAT(error, HasSubstr("belongs to unit left already, as left.weight"));
  });
}

TEST(FullyShard, RefusesWhatItCannotShard) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<Shared>();
    fsdp::ShardedModel sharded(module, mesh);
    EXPECT_THAT(error_of([&] { sharded.fully_shard(std::make_shared<TwoInputs>()); }), HasSubstr("is not in the root"));
    sharded.fully_shard(module->left);
    EXPECT_THAT(error_of([&] { sharded.fully_shard(module->left); }), HasSubstr("left is a unit already"));
    const auto counts = std::make_shared<torch::nn::Module>();
    counts->register_parameter("count", at::ones({1}, at::kLong), false);
    fsdp::ShardedModel integers(counts, mesh);
    EXPECT_THAT(error_of([&] { integers.fully_shard(counts); }), HasSubstr("parameter count is Long"));
    fsdp::ShardOptions options;
    options.precision.param_dtype = at::kDouble;
    const auto other = std::make_shared<TwoInputs>();
    fsdp::ShardedModel half(other, mesh);
    EXPECT_THAT(error_of([&] { half.fully_shard(other, options); }), HasSubstr("must be float32, bfloat16 or float16"));
  });
}

TEST(FullyShard, MakesAUnitWithoutParametersFromAModuleWhoseChildrenHaveAll) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<Shared>();
    module->right = module->replace_module("right", std::make_shared<torch::nn::Module>());
    fsdp::ShardedModel sharded(module, mesh);
    const auto left = sharded.fully_shard(module->left);
    const auto root = sharded.fully_shard(module);
    EXPECT_TRUE(root->segments().empty());
    const at::Tensor x = at::ones({4}).requires_grad_();
    root->run(x,
              [&](at::Tensor in) {
                return left->run(in, [&](at::Tensor inner) { return inner * module->left->weight; });
              })
        .sum()
        .backward();
    EXPECT_TRUE(at::equal(x.grad(), at::full({4}, 2.0)));
    fsdp::AdamW optimizer(sharded);
    optimizer.step(0.1);
    EXPECT_EQ(optimizer.steps(), 1);
  });
}

}  // namespace
