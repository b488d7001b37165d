// Goal: what users of LibTorch do to a module works on a sharded one, or is refused with the unit and the remedy. It
// never does nothing, and never ends the process. That holds with one rank as with several.
// Method: the small model on 1 to 3 ranks, trained beside a copy that nobody disturbs, and plain torch::optim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "fsdp/optim/grad_scaler.h"
#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Le;

using State = std::map<std::string, at::Tensor>;

void expect_same(const State& got, const State& want, const char* after) {
  for (const auto& [name, tensor] : want) EXPECT_TRUE(at::equal(got.at(name), tensor)) << name << " after " << after;
}

/// The weights after steps 0 to `steps` - 1 that nobody disturbs.
State undisturbed(fsdp::DeviceMesh& mesh, int steps, const fsdp::ShardOptions& options = {}) {
  Trainer trainer(mesh, options);
  for (int step = 0; step < steps; ++step) trainer.step(step);
  return trainer.sharded.gather_full_state();
}

/// Runs `inside` in each forward of block 1, after its computation.
void run_inside(Trainer& trainer, const std::function<void(Block&)>& inside) {
  const auto block = trainer.model->blocks[1];
  const auto inner = block->wrap;
  block->wrap = [=](at::Tensor x, const auto& forward) {
    return inner(x, [&](at::Tensor in) {
      const at::Tensor out = forward(in);
      inside(*block);
      return out;
    });
  };
}

// Such a use once ended the process by a signal, with no word of whose memory it was.
TEST(ModuleIdiom, AParameterOutsideOfRunIsAnErrorThatNamesTheUnit) {
  fsdp::ShardOptions in_bf16;
  in_bf16.precision.param_dtype = at::kBFloat16;
  for (const auto& [world_size, options] :
       {std::pair{2, fsdp::ShardOptions{}}, {3, fsdp::ShardOptions{}}, {1, in_bf16}, {2, in_bf16}}) {
    run_ranks(world_size, [&, &options = options](fsdp::DeviceMesh& mesh) {
      const State want = undisturbed(mesh, 2, options);
      Trainer trainer(mesh, options);
      at::Tensor leaked;
      run_inside(trainer, [&](Block& block) { leaked = block.up.t(); });
      trainer.step(0);
      at::Tensor& up = trainer.model->blocks[1]->up;
      const std::function<void()> uses[] = {
          [&] { up.sum(); },
          [&] { up.clone(); },
          [&] { up.t().contiguous(); },
          [&] { leaked.sum(); },
          [&] { up[0][0].item<float>(); },
          [&] {
            at::matmul(at::ones({2, kWidth}, up.options()), up.t());
          },
          [&] { trainer.model->blocks[1]->to(at::kDouble); },
          [&] { trainer.model->blocks[1]->to(at::kHalf); },
          [&] {
            const at::NoGradGuard no_grad;
            up.mul_(0.5);
          },
          [&] {
            const at::NoGradGuard no_grad;
            leaked.fill_(1);
          },
          [&] { up.data_ptr(); },
      };
      for (const auto& use : uses)
        EXPECT_THAT(error_of(use), AllOf(HasSubstr("unit block1"), HasSubstr("outside of the unit's run()"),
                                         HasSubstr("gather_full_state()")));
      EXPECT_EQ(up.numel(), kHidden * kWidth) << "sizes are known";
      EXPECT_EQ(up.t().size(0), kWidth) << "views can be made";
      trainer.step(1);
      expect_same(trainer.sharded.gather_full_state(), want, "uses that were refused");
    });
  }
}

// A graph that outlives its ShardedModel reads closed memory as well.
TEST(ModuleIdiom, AParameterAfterItsShardedModelIsAnErrorToo) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto model = make_model();
    { fsdp::ShardedModel(model, mesh).fully_shard(model); }
    EXPECT_THAT(error_of([&] { model->embedding.sum(); }), HasSubstr("unit root"));
  });
}

TEST(ModuleIdiom, ZeroGradOfTheModuleDropsTheGradients) {
  for (const int world_size : {1, 2, 3}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const State want = undisturbed(mesh, 3);
      Trainer trainer(mesh);
      for (int step = 0; step < 3; ++step) {
        trainer.accumulate(tokens_of(step));
        trainer.optimizer->step(1e-2);
        trainer.model->zero_grad();
      }
      expect_same(trainer.sharded.gather_full_state(), want, "module->zero_grad() in each step");
      // At the next use nothing is left, and nothing changes by a step.
      EXPECT_EQ(fsdp::gradient_norm(trainer.sharded).norm.item<double>(), 0);
      trainer.optimizer->step(1);
      expect_same(trainer.sharded.gather_full_state(), want, "a step without gradients");
      EXPECT_TRUE(trainer.sharded.gather_full_gradients().empty());
    });
  }
}

TEST(ModuleIdiom, ZeroGradOfTheModuleDropsWhatNoBackwardHasReduced) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const State want = undisturbed(mesh, 1);
      Trainer trainer(mesh);
      trainer.sharded.set_requires_gradient_sync(false);
      trainer.accumulate(tokens_of(7));
      trainer.model->zero_grad();
      trainer.sharded.set_requires_gradient_sync(true);
      trainer.step(0);
      expect_same(trainer.sharded.gather_full_state(), want, "a micro-batch that was given up");
    });
  }
}

// Blocks that take no part in the next backward lose their gradients, too.
TEST(ModuleIdiom, ZeroGradOfTheModuleReachesUnitsThatTheNextBackwardDoesNot) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer cleared(mesh), plain(mesh);
      for (Trainer* trainer : {&cleared, &plain}) {
        trainer->accumulate(tokens_of(0));
        if (trainer == &cleared) trainer->model->zero_grad();
        if (trainer == &plain) trainer->sharded.zero_grad();
        trainer->model->blocks.pop_back();
        trainer->accumulate(tokens_of(1));
        trainer->optimizer->step(1e-2);
      }
      expect_same(cleared.sharded.gather_full_state(), plain.sharded.gather_full_state(), "another set of blocks");
    });
  }
}

TEST(ModuleIdiom, ZeroGradToZerosClearsWhatIsWholeAndIsRefusedWhereItIsNot) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.accumulate(tokens_of(0));
      const std::string error = error_of([&] { trainer.model->zero_grad(/*set_to_none=*/false); });
      if (mesh.world_size() == 1) {
        EXPECT_EQ(error, "no error");
        EXPECT_EQ(fsdp::gradient_norm(trainer.sharded).norm.item<double>(), 0);
      } else {
        EXPECT_THAT(error, AllOf(HasSubstr("unit "), HasSubstr("drop gradients by ShardedModel::zero_grad()")));
        EXPECT_GT(fsdp::gradient_norm(trainer.sharded).norm.item<double>(), 0);
      }
      trainer.sharded.zero_grad();
      trainer.step(1);
    });
  }
}

TEST(ModuleIdiom, GradientsThatOneUnitKeepsInPartAreRefused) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.accumulate(tokens_of(0));
      trainer.model->blocks[1]->up.mutable_grad().reset();
      const auto told = AllOf(HasSubstr("unit block1: the gradient of block1.up was removed after backward"),
                              HasSubstr("ParameterGroup::skip"));
      EXPECT_THAT(error_of([&] { trainer.optimizer->step(0.1); }), told);
      EXPECT_THAT(error_of([&] { trainer.accumulate(tokens_of(1)); }), told);
      trainer.sharded.abandon_step();
      trainer.step(0);
    });
  }
}

TEST(ModuleIdiom, TorchOptimTrainsOnOneRankAndIsRefusedOnSeveral) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const auto plain = make_model();
      torch::optim::SGD of_plain(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      Trainer trainer(mesh);
      torch::optim::SGD optimizer(trainer.model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        trainer.accumulate(tokens_of(step));
        if (mesh.world_size() > 1) {
          EXPECT_THAT(error_of([&] { optimizer.step(); }),
                      AllOf(HasSubstr("unit "), HasSubstr("update by an fsdp::Optimizer")));
          continue;
        }
        optimizer.step();
        of_plain.zero_grad();
        plain->forward(tokens_of(step)).backward();
        of_plain.step();
      }
      const State state = trainer.sharded.gather_full_state();
      for (const auto& item : plain->named_parameters())
        EXPECT_THAT(distance(state.at(item.key()), item.value().detach()), Le(1e-5)) << item.key();
    });
  }
}

TEST(ModuleIdiom, TorchsClippingWorksOnOneRankAndIsRefusedOnSeveral) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.accumulate(tokens_of(0));
      const double norm = fsdp::gradient_norm(trainer.sharded).norm.item<double>();
      std::vector<at::Tensor> parameters;
      for (const auto& item : trainer.model->named_parameters())
        if (item.key() != "head") parameters.push_back(item.value());  // tied to the embedding
      const auto clip = [&] { torch::nn::utils::clip_grad_norm_(parameters, norm / 4); };
      if (mesh.world_size() > 1) {
        EXPECT_THAT(error_of(clip), AllOf(HasSubstr("unit "), HasSubstr("clip by fsdp::gradient_norm()")));
      } else {
        clip();
        EXPECT_THAT(relative(fsdp::gradient_norm(trainer.sharded).norm.item<double>(), norm / 4), Le(1e-4));
      }
    });
  }
}

TEST(ModuleIdiom, AGradientThatIsReplacedAfterBackwardIsRefused) {
  for (const int world_size : {1, 2, 3}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const State want = undisturbed(mesh, 2);
      Trainer trainer(mesh);
      trainer.step(0);
      trainer.accumulate(tokens_of(1));
      at::Tensor& up = trainer.model->blocks[1]->up;
      const at::Tensor of_engine = up.grad();
      up.mutable_grad() = at::ones({kHidden, kWidth});
      const auto told = AllOf(HasSubstr("unit block1: the gradient of block1.up was replaced after backward"),
                              HasSubstr("in a hook of the parameter"));
      EXPECT_THAT(error_of([&] { trainer.optimizer->step(1e-2); }), told);
      EXPECT_THAT(error_of([&] { fsdp::gradient_norm(trainer.sharded); }), told);
      EXPECT_THAT(error_of([&] { trainer.sharded.gather_full_gradients(); }), told);
      up.mutable_grad() = of_engine;
      trainer.optimizer->step(1e-2);
      trainer.sharded.zero_grad();
      expect_same(trainer.sharded.gather_full_state(), want, "a gradient that was put back");
    });
  }
}

TEST(ModuleIdiom, AGradientThatIsReplacedBetweenMicroBatchesIsRefused) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.sharded.set_requires_gradient_sync(false);
      trainer.accumulate(tokens_of(0));
      trainer.model->norm.mutable_grad() = trainer.model->norm.grad() * 2;
      EXPECT_THAT(error_of([&] { trainer.accumulate(tokens_of(1)); }),
                  HasSubstr("unit root: the gradient of norm was replaced after backward"));
      trainer.sharded.abandon_step();
      trainer.sharded.set_requires_gradient_sync(true);
      trainer.step(0);
    });
  }
}

// A gradient that a user keeps is whole until it is reduced.
TEST(ModuleIdiom, AGradientThatWasKeptIsClosedWithItsReduction) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.sharded.set_requires_gradient_sync(false);
    trainer.accumulate(tokens_of(0));
    const at::Tensor kept = trainer.model->blocks[0]->up.grad();
    EXPECT_GT(kept.abs().sum().item<double>(), 0);
    trainer.sharded.set_requires_gradient_sync(true);
    trainer.accumulate(tokens_of(1));
    EXPECT_THAT(error_of([&] { kept.sum(); }),
                AllOf(HasSubstr("unit block0: a parameter's gradient was used after it was reduced"),
                      HasSubstr("gather_full_gradients()")));
  });
}

TEST(ModuleIdiom, AStepOnGradientsThatNoBackwardHasReducedIsRefused) {
  for (const int world_size : {1, 2, 3}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh), plain(mesh);
      const auto before = trainer.sharded.gather_full_state();
      const auto told = AllOf(HasSubstr("unit block0 has gradients that no backward has reduced"),
                              HasSubstr("set_requires_gradient_sync(true)"));
      trainer.sharded.set_requires_gradient_sync(false);
      trainer.accumulate(tokens_of(0));
      EXPECT_THAT(error_of([&] { trainer.optimizer->step(0.1); }), AllOf(HasSubstr("step: "), told));
      EXPECT_THAT(error_of([&] { fsdp::gradient_norm(trainer.sharded); }), AllOf(HasSubstr("gradient_norm: "), told));
      expect_same(trainer.sharded.gather_full_state(), before, "steps that were refused");
      // Also behind gradients that are reduced.
      trainer.sharded.set_requires_gradient_sync(true);
      trainer.accumulate(tokens_of(1));
      fsdp::gradient_norm(trainer.sharded);
      trainer.sharded.set_requires_gradient_sync(false);
      trainer.accumulate(tokens_of(2));
      EXPECT_THAT(error_of([&] { trainer.optimizer->step(0.1); }), told);
      trainer.sharded.set_requires_gradient_sync(true);
      trainer.accumulate(tokens_of(3));
      for (int batch = 0; batch < 4; ++batch) plain.accumulate(tokens_of(batch));
      for (Trainer* one : {&trainer, &plain}) one->optimizer->step(1e-2);
      const State want = plain.sharded.gather_full_state();
      for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
        EXPECT_THAT(distance(tensor, want.at(name)), Le(1e-4)) << name;
    });
  }
}

// A codebook, clamped weights, the norm of an embedding: the shard has none of it.
TEST(ModuleIdiom, AChangeOfAParameterInsideOfRunIsRefused) {
  const std::pair<const char*, std::function<void(Block&)>> changes[] = {
      {"up", [](Block& block) { block.up.clamp_(-0.1, 0.1); }},
      {"up", [](Block& block) { block.up.t()[0].zero_(); }},
      {"up", [](Block& block) { block.up.detach().add_(1); }},
      {"up", [](Block& block) { at::embedding_renorm_(block.up, at::zeros({1}, at::kLong), 1e-3, 2); }},
      {"frozen", [](Block& block) { block.frozen.copy_(at::ones({5})); }},
      {"unused", [](Block& block) { block.unused.fill_(3); }}};
  for (const int world_size : {1, 2, 3}) {
    for (const auto& [name, change] : changes) {
      run_ranks(world_size, [&, name = std::string(name), &change = change](fsdp::DeviceMesh& mesh) {
        const State want = undisturbed(mesh, 2);
        Trainer trainer(mesh);
        trainer.step(0);
        bool once = true;
        run_inside(trainer, [&](Block& block) {
          const at::NoGradGuard no_grad;
          if (std::exchange(once, false)) change(block);
        });
        EXPECT_THAT(error_of([&] { trainer.accumulate(tokens_of(1)); }),
                    AllOf(HasSubstr("unit block1: parameter block1." + name + " was changed in place"),
                          HasSubstr("load_full_state()")));
        EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, 0);
        if (mesh.world_size() == 1) return;  // there the weights have the change
        trainer.step(1);
        expect_same(trainer.sharded.gather_full_state(), want, "a change that was refused");
      });
    }
  }
}

TEST(ModuleIdiom, AChangeOfAParameterDuringBackwardIsRefused) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      Block& block = *trainer.model->blocks[1];
      // The bias is not needed by its own backward, so autograd says nothing.
      block.up.register_hook([&](const at::Tensor&) {
        const at::NoGradGuard no_grad;
        block.bias.zero_();
      });
      EXPECT_THAT(error_of([&] { trainer.accumulate(tokens_of(0)); }),
                  HasSubstr("unit block1: parameter block1.bias was changed in place"));
      trainer.sharded.abandon_step();
    });
  }
}

// The root stays gathered from forward to backward, and with ZeRO-1 all units do until the step.
TEST(ModuleIdiom, AChangeOfAParameterThatStaysGatheredIsRefused) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    fsdp::ShardOptions zero1;
    zero1.reshard_after_forward = zero1.reshard_after_backward = false;
    Trainer trainer(mesh, zero1);
    trainer.accumulate(tokens_of(0));
    {
      const at::NoGradGuard no_grad;
      trainer.model->blocks[0]->bias.clamp_(0, 1);
    }
    EXPECT_THAT(error_of([&] { trainer.optimizer->step(0.1); }),
                HasSubstr("unit block0: parameter block0.bias was changed in place"));
    EXPECT_THAT(error_of([&] { trainer.sharded.units()[0]->reshard(); }), HasSubstr("block0.bias"));
  });
}

TEST(ModuleIdiom, AParameterWithOtherMemoryIsRefused) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.step(0);
    trainer.model->blocks[2]->to(at::kDouble);  // one rank has the values, so this works
    EXPECT_THAT(
        error_of([&] { trainer.accumulate(tokens_of(1)); }),
        AllOf(HasSubstr("unit block2: parameter block2.norm has other memory"), HasSubstr("ShardOptions::precision")));
  });
}

/// A module that only computes.
struct Nothing : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x * 2; }
};

TEST(ModuleIdiom, AModelWithoutParametersTrains) {
  const MakeOptimizer makers[] = {maker<fsdp::AdamW>(fsdp::AdamWOptions()), maker<fsdp::Adam>(fsdp::AdamOptions()),
                                  maker<fsdp::Sgd>(fsdp::SgdOptions()), maker<fsdp::Lion>(fsdp::LionOptions())};
  for (const int world_size : {1, 2}) {
    for (const auto& make : makers) {
      run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
        const auto module = std::make_shared<Nothing>();
        fsdp::ShardedModel sharded(module, mesh);
        const auto unit = sharded.fully_shard(module);
        const auto optimizer = make(sharded);
        optimizer->keep_average(0.9);
        for (int step = 0; step < 2; ++step) {
          const at::Tensor x = at::ones({3}).requires_grad_();
          unit->run(x, [&](const at::Tensor& in) { return module->forward(in); }).sum().backward();
          EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 2.0)));
          const auto norm = fsdp::gradient_norm(sharded, 1.0);
          EXPECT_EQ(norm.norm.item<double>(), 0);
          optimizer->step(0.1, norm.grad_scale, norm.found_inf);
          sharded.zero_grad();
        }
        EXPECT_EQ(optimizer->steps(), 2);
        optimizer->exchange_average();
        optimizer->exchange_average();
      });
    }
  }
}

class CheckpointOfNothing : public Checkpoint {};

TEST_F(CheckpointOfNothing, IsSavedAndLoaded) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<Nothing>();
      fsdp::ShardedModel sharded(module, mesh);
      sharded.fully_shard(module);
      fsdp::AdamW optimizer(sharded);
      optimizer.step(0.1);
      fsdp::Checkpointer checkpointer(sharded, optimizer, options());
      checkpointer.save(state_of(world_size));
      mesh.control().barrier();
      fsdp::AdamW again(sharded);
      const auto loaded = fsdp::Checkpointer(sharded, again, options()).load_latest();
      ASSERT_TRUE(loaded);
      EXPECT_EQ(loaded->state.step, world_size);
      EXPECT_EQ(again.steps(), 1);
    });
  }
}

}  // namespace
