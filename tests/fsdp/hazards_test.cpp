// Goal: what people do to a model beside plain training gives the right result or an error that names the mistake.
// Method: small modules on 1 to 4 ranks, compared with plain autograd or with the text of the error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <map>

#include "fsdp/optim/grad_scaler.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"

namespace {

/// Calls a function after a parameter's gradient has been accumulated.
struct Replace : torch::autograd::FunctionPostHook {
  explicit Replace(std::function<void()> f) : replace(std::move(f)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    replace();
    return outputs;
  }
  std::function<void()> replace;
};

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Le;

// Two units of the same size, so only names tell their bytes apart.
TEST(Hazard, AnotherOrderOfUnitsOnAnotherRankIsAnErrorThatNamesTheUnit) {
  run_ranks(
      2,
      [](fsdp::DeviceMesh& mesh) {
        Trainer trainer(mesh);
        const auto& units = trainer.sharded.units();
        const int first = mesh.rank();
        EXPECT_THAT(error_of([&] { units[first]->wait_unsharded(), units[1 - first]->wait_unsharded(); }),
                    AllOf(HasSubstr("all-gather of block" + std::to_string(first)), HasSubstr("another unit")));
      },
      std::chrono::milliseconds(500));
}

TEST(Hazard, AnotherKindOfCollectiveOnAnotherRankIsAnError) {
  run_ranks(
      2,
      [](fsdp::DeviceMesh& mesh) {
        const at::Tensor buffer = at::zeros({8}), part = at::zeros({4});
        const auto call = [&] {
          if (mesh.rank() == 0) mesh.shard().all_gather_into(buffer, "layer")->wait();
          if (mesh.rank() == 1) mesh.shard().reduce_scatter(buffer, part, "layer")->wait();
        };
        EXPECT_THAT(error_of(call), HasSubstr("of layer on rank " + std::to_string(mesh.rank())));
      },
      std::chrono::milliseconds(500));
}

at::Tensor input(const fsdp::DeviceMesh& mesh) {
  return at::sin(at::arange(4 * kWidth).reshape({4, kWidth}) + mesh.rank()).requires_grad_();
}

/// The gradients of `loss` of the plain model's blocks, as means over ranks.
std::map<std::string, at::Tensor> plain_gradients(fsdp::DeviceMesh& mesh, SmallModel& model) {
  std::map<std::string, at::Tensor> mean;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().grad().defined()) continue;
    at::Tensor sum = item.value().grad().detach().clone();
    mesh.shard().all_reduce(sum);
    mean[item.key()] = sum / mesh.world_size();
  }
  return mean;
}

void expect_gradients_like(fsdp::DeviceMesh& mesh, SmallModel& plain, fsdp::ShardedModel& sharded) {
  const auto want = plain_gradients(mesh, plain);
  const auto got = sharded.gather_full_gradients();
  EXPECT_FALSE(want.empty());
  for (const auto& [name, gradient] : want) {
    ASSERT_EQ(got.count(name), 1u) << name;
    EXPECT_THAT(distance(got.at(name), gradient), Le(1e-5)) << name;
  }
}

void backward_with_graph(const at::Tensor& loss) {
  loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
}

TEST(Hazard, CreateGraphKeepsTheGradients) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      const auto plain = make_model();
      const at::Tensor tokens = part_of(tokens_of(0), mesh.rank(), mesh.world_size());
      for (int pass = 0; pass < 2; ++pass) {
        backward_with_graph(plain->forward(tokens));
        backward_with_graph(trainer.model->forward(tokens));
        expect_gradients_like(mesh, *plain, trainer.sharded);
      }
    });
  }
}

// The penalty's backward needs the parameters of blocks whose outputs it does not begin with.
TEST(Hazard, AGradientPenaltyTrainsAsUnsharded) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      const auto plain = make_model();
      const auto penalise = [&](SmallModel& model) {
        const at::Tensor x = input(mesh);
        at::Tensor y = x;
        for (const auto& block : model.blocks) y = block->forward(y);
        const at::Tensor slope = torch::autograd::grad({y.pow(2).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
        (slope.pow(2).sum() + y.sum()).backward();
      };
      penalise(*plain);
      penalise(*trainer.model);
      expect_gradients_like(mesh, *plain, trainer.sharded);
      EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, 0);
      EXPECT_EQ(trainer.sharded.memory().unreduced_bytes_now, 0);
    });
  }
}

TEST(Hazard, AGradientThatAHookReplacesCounts) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    at::Tensor& up = trainer.model->blocks[1]->up;
    const auto hooks = torch::autograd::impl::grad_accumulator(up);
    hooks->add_post_hook(std::make_unique<Replace>([&] { up.mutable_grad() = at::ones_like(up); }));
    trainer.accumulate(tokens_of(0));
    EXPECT_TRUE(at::equal(trainer.sharded.gather_full_gradients().at("block1.up"), at::ones({kHidden, kWidth})));
    hooks->add_post_hook(std::make_unique<Replace>([&] { up.mutable_grad() = at::Tensor(); }));
    EXPECT_THAT(error_of([&] { trainer.accumulate(tokens_of(0)); }),
                HasSubstr("the gradient of block1.up was removed"));
  });
}

// A captured table is returned, as a tied head might do.
TEST(Hazard, AnOutputThatIsAParameterIsAnErrorThatNamesTheUnit) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      const auto& unit = trainer.sharded.units()[0];
      const at::Tensor up = trainer.model->blocks[0]->up;
      const std::function<at::Tensor()> outputs[] = {[&] { return up; }, [&] { return up.t(); },
                                                     [&] { return up.detach(); }};
      for (const auto& output : outputs)
        EXPECT_THAT(error_of([&] { unit->run(at::ones({1}), [&](const at::Tensor&) { return output(); }); }),
                    AllOf(HasSubstr("unit block0: output 0"), HasSubstr("clone()")));
      EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, 0);
    });
  }
}

TEST(Hazard, AModelRunsOnAfterItsShardedModelAndMeshAreGone) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    auto own_mesh = std::make_unique<fsdp::DeviceMesh>(nullptr, 0, 1);
    const auto model = make_model();
    {
      fsdp::ShardedModel sharded(model, *own_mesh);
      fsdp::ShardOptions options;
      options.precision.param_dtype = at::kBFloat16;
      model->wrap = wrapper(sharded.fully_shard(model, options));
    }
    own_mesh.reset();
    const at::NoGradGuard no_grad;
    EXPECT_GT(model->forward(tokens_of(mesh.rank())).item<double>(), 0);
  });
}

TEST(Hazard, TheBackwardOfAForwardBeforeTheStepIsAnError) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      const at::Tensor stale = trainer.model->forward(tokens_of(0));
      trainer.step(1);
      EXPECT_THAT(error_of([&] { stale.backward(); }),
                  AllOf(HasSubstr("unit root"), HasSubstr("before the unit's parameters changed")));
      trainer.sharded.abandon_step();
      trainer.step(2);
    });
  }
}

std::int64_t peak_of_a_step(fsdp::DeviceMesh& mesh, const std::function<void(Trainer&)>& before) {
  Trainer trainer(mesh);
  trainer.step(0);
  before(trainer);
  trainer.step(1);
  return trainer.sharded.memory().gathered_bytes_peak + trainer.sharded.memory().unreduced_bytes_peak;
}

TEST(Hazard, ADroppedForwardDoesNotUnshardTheNextStep) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const std::int64_t usual = peak_of_a_step(mesh, [](Trainer&) {});
    std::vector<at::Tensor> kept;
    EXPECT_EQ(peak_of_a_step(mesh, [](Trainer& t) { t.model->forward(tokens_of(3)); }), usual);
    EXPECT_EQ(peak_of_a_step(mesh, [&](Trainer& t) { kept.push_back(t.model->forward(tokens_of(3))); }), usual);
  });
}

/// Makes block `failing` throw once, in its forward or in its backward.
void make_block_throw(Trainer& trainer, int failing, bool in_backward) {
  const auto inner = trainer.model->blocks[failing]->wrap;
  const auto fresh = std::make_shared<bool>(true);
  trainer.model->blocks[failing]->wrap = [=](at::Tensor x, const auto& forward) {
    return inner(x, [&](at::Tensor in) {
      if (!std::exchange(*fresh, false)) return forward(in);
      if (!in_backward) throw std::runtime_error("no memory for this batch");
      const at::Tensor out = forward(in);
      out.register_hook([](const at::Tensor&) { throw std::runtime_error("no memory for this batch"); });
      return out;
    });
  };
}

TEST(Hazard, AThrownForwardLeavesNothingGathered) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const std::int64_t usual = peak_of_a_step(mesh, [](Trainer&) {});
      const std::int64_t peak = peak_of_a_step(mesh, [](Trainer& t) {
        make_block_throw(t, 1, false);
        EXPECT_THAT(error_of([&] { t.accumulate(tokens_of(2)); }), HasSubstr("no memory for this batch"));
        EXPECT_EQ(t.sharded.memory().gathered_bytes_now, 0);
      });
      EXPECT_EQ(peak, usual);
    });
  }
}

TEST(Hazard, AThrownBackwardLeavesNothingAndIsNotForgotten) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const std::int64_t usual = peak_of_a_step(mesh, [](Trainer&) {});
      const std::int64_t peak = peak_of_a_step(mesh, [](Trainer& t) {
        make_block_throw(t, 1, true);
        EXPECT_THAT(error_of([&] { t.accumulate(tokens_of(2)); }), HasSubstr("no memory for this batch"));
        EXPECT_EQ(t.sharded.memory().gathered_bytes_now, 0);
        EXPECT_EQ(t.sharded.memory().unreduced_bytes_now, 0);
        const auto incomplete = HasSubstr("a backward of this step threw");
        EXPECT_THAT(error_of([&] { t.optimizer->step(0.1); }), incomplete);
        EXPECT_THAT(error_of([&] { fsdp::gradient_norm(t.sharded); }), incomplete);
        EXPECT_THAT(error_of([&] { t.accumulate(tokens_of(2)); }), incomplete);
        t.sharded.abandon_step();
      });
      EXPECT_EQ(peak, usual);
    });
  }
}

// A gradient inside of forward, as in models of forces. Its backward ends while the root still runs.
TEST(Hazard, ABackwardInsideOfAForwardLeavesTheRunningUnitsAlone) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      const auto plain = make_model();
      const auto with_force = [&](SmallModel& model) {
        const auto inside = [&](at::Tensor tokens) {
          const at::Tensor x = input(mesh);
          const at::Tensor force = torch::autograd::grad({model.blocks[0]->forward(x).sum()}, {x})[0];
          return model.compute(tokens) + (force.detach() * model.norm).sum();
        };
        const at::Tensor tokens = part_of(tokens_of(0), mesh.rank(), mesh.world_size());
        (model.wrap ? model.wrap(tokens, inside) : inside(tokens)).backward();
      };
      with_force(*plain);
      with_force(*trainer.model);
      expect_gradients_like(mesh, *plain, trainer.sharded);
    });
  }
}

}  // namespace
