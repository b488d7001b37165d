// Goal: each parameter costs what its part in training needs, and trains as torch.optim would train it.
// Method: the small model on 1 to 4 ranks with parameters frozen, unfrozen, unused and of other dtypes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/files/checkpoint.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/temporary_folder.h"

namespace {

using ::testing::HasSubstr;
using ::testing::Le;

/// A small frozen model with one trainable adapter: the shape of LoRA.
struct Adapted : torch::nn::Module {
  static constexpr std::int64_t kWide = 64, kRank = 2;
  Adapted() {
    base = register_parameter("base", at::randn({kWide, kWide}) * 0.1, /*requires_grad=*/false);
    down = register_parameter("down", at::randn({kRank, kWide}) * 0.1);
    up = register_parameter("up", at::randn({kWide, kRank}) * 0.1);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto compute = [this](const at::Tensor& in) {
      return at::matmul(in, base.t()) + at::matmul(at::matmul(in, down.t()), up.t());
    };
    return wrap ? wrap(x, compute) : compute(x);
  }
  at::Tensor base, down, up;
  Wrap wrap;
};

TEST(Segments, AFrozenParameterCostsItsValuesAlone) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const auto model = std::make_shared<Adapted>();
      fsdp::ShardedModel sharded(model, mesh);
      fsdp::ShardOptions options;
      options.precision.param_dtype = at::kBFloat16;
      options.sync_module_states = true;
      const auto unit = sharded.fully_shard(model, options);
      model->wrap = wrapper(unit);
      fsdp::AdamW optimizer(sharded);
      const std::int64_t n = mesh.world_size(), frozen = Adapted::kWide * Adapted::kWide / n;
      const std::int64_t trained = 2 * Adapted::kRank * Adapted::kWide / n;
      EXPECT_EQ(sharded.memory().shard_bytes, frozen * 2 + trained * 4) << "no fp32 master of what never trains";
      EXPECT_EQ(optimizer.state_bytes(), trained * 4 * 2);
      const std::int64_t before = mesh.wire_bytes();
      model->forward(at::ones({3, Adapted::kWide}).requires_grad_()).sum().backward();
      EXPECT_EQ(sharded.memory().gradient_shard_bytes, trained * 4);
      EXPECT_THAT(sharded.memory().unreduced_bytes_peak, Le(trained * n * 4));
      const std::int64_t gathers = 2 * (frozen + trained) * 2, reduction = trained * 4, flags = 2;
      EXPECT_EQ(mesh.wire_bytes() - before, (gathers + reduction + flags) * (n - 1));
      optimizer.step(0.1);
    });
  }
}

/// Trains both with `before_step` applied, and compares losses and parameters.
void expect_equal_training(const fsdp::ShardOptions& options,
                           const std::function<void(SmallModel&, int)>& before_step) {
  constexpr int kSteps = 12;
  Reference reference;
  std::vector<double> truth;
  for (int step = 0; step < kSteps; ++step) {
    before_step(*reference.model, step);
    truth.push_back(reference.step(step));
  }
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, options);
      for (int step = 0; step < kSteps; ++step) {
        before_step(*trainer.model, step);
        EXPECT_THAT(relative(trainer.step(step), truth[step]), Le(1e-5)) << "step " << step;
      }
      const auto state = trainer.sharded.gather_full_state();
      for (const auto& item : reference.model->named_parameters())
        EXPECT_THAT(distance(state.at(item.key()), item.value()), Le(1e-4)) << item.key();
    });
  }
}

TEST(EveryWorldSize, FreezeAfterSharding) {
  expect_equal_training({}, [](SmallModel& model, int step) {
    if (step == 3) model.blocks[1]->up.requires_grad_(false);
    if (step == 5) model.embedding.requires_grad_(false);
  });
}

TEST(EveryWorldSize, UnfreezeAfterSharding) {
  expect_equal_training({}, [](SmallModel& model, int step) {
    if (step == 0) model.blocks[2]->down.requires_grad_(false);
    if (step == 4) model.blocks[2]->down.requires_grad_(true);
    if (step == 6) model.blocks[2]->down.requires_grad_(false);
    if (step == 8) model.blocks[2]->down.requires_grad_(true);
  });
}

TEST(EveryWorldSize, UnfreezeWhatWasFrozenFromTheBeginning) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.step(0);
      trainer.model->blocks[1]->frozen.requires_grad_(true);
      trainer.step(1);
      const auto state = trainer.sharded.gather_full_state();
      EXPECT_FALSE(at::equal(state.at("block1.frozen"), make_model()->blocks[1]->frozen));
      EXPECT_EQ(trainer.optimizer->steps(1, 5), 1);
    });
  }
}

TEST(Segments, RefuseToUnfreezeInTheMiddleOfAStep) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.accumulate(tokens_of(0));
      trainer.model->blocks[1]->frozen.requires_grad_(true);
      EXPECT_THAT(error_of([&] { trainer.accumulate(tokens_of(0)); }),
                  HasSubstr("requires_grad of block1.frozen was set in the middle of a step"));
      trainer.sharded.abandon_step();
      trainer.step(0);
    });
  }
}

// A matrix would decay, unlike the one-dimensional parameter `unused` of the small model.
TEST(EveryWorldSize, LeaveAnUnusedMatrixAlone) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      at::Tensor up;
      for (int step = 0; step < 6; ++step) {
        if (step == 2) up = trainer.sharded.gather_full_state().at("block2.up");
        if (step >= 2) {  // the block runs, but without its matrix
          auto& block = *trainer.model->blocks[2];
          block.wrap = [&block, unit = trainer.sharded.units()[2]](at::Tensor x, const auto&) {
            return unit->run(x, [&block](at::Tensor in) { return in * block.norm; });
          };
        }
        trainer.step(step);
      }
      EXPECT_TRUE(at::equal(trainer.sharded.gather_full_state().at("block2.up"), up));
      EXPECT_EQ(trainer.optimizer->steps(2, 1), 2);
      EXPECT_EQ(trainer.optimizer->steps(2, 0), 6);
    });
  }
}

TEST(EveryWorldSize, UpdateWhatOnlyOneRankUsed) {
  for (const int world_size : {2, 3}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      auto& block = *trainer.model->blocks[2];
      if (mesh.rank() > 0)
        block.wrap = [&block, unit = trainer.sharded.units()[2]](at::Tensor x, const auto&) {
          return unit->run(x, [&block](at::Tensor in) { return in * block.norm; });
        };
      trainer.step(0);
      EXPECT_EQ(trainer.optimizer->steps(2, 1), 1);
      EXPECT_FALSE(at::equal(trainer.sharded.gather_full_state().at("block2.up"), make_model()->blocks[2]->up));
    });
  }
}

TEST(EveryWorldSize, MixDtypesInOneUnit) {
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      fsdp::ShardOptions options;
      options.precision.param_dtype = at::kBFloat16;
      options.precision.param_dtype_of = [](const fsdp::ParameterInfo& info) {
        return info.shape.size() < 2 ? at::kFloat : at::kBFloat16;
      };
      Trainer trainer(mesh, options);
      EXPECT_EQ(trainer.model->blocks[0]->norm.scalar_type(), at::kFloat);
      EXPECT_EQ(trainer.model->blocks[0]->up.scalar_type(), at::kBFloat16);
      // Plain autograd on parameters of the same dtypes.
      const auto plain = make_model();
      for (auto& item : plain->named_parameters())
        if (item.value().dim() >= 2) item.value().set_data(item.value().detach().to(at::kBFloat16));
      const auto block_output = [&](SmallModel& model) {
        const at::Tensor x = at::sin(at::arange(2 * kWidth)).reshape({2, kWidth}).to(at::kBFloat16);
        Block& block = *model.blocks[0];
        const auto compute = [&block](const at::Tensor& in) {
          return at::matmul(in, block.up.t()).to(at::kFloat) + block.bias;
        };
        return block.wrap ? block.wrap(x, compute) : compute(x);
      };
      block_output(*plain).pow(2).sum().backward();
      block_output(*trainer.model).pow(2).sum().backward();
      const auto gradients = trainer.sharded.gather_full_gradients();
      for (const at::Tensor& p : {plain->blocks[0]->up, plain->blocks[0]->bias})
        EXPECT_THAT(distance(gradients.at(p.dim() == 2 ? "block0.up" : "block0.bias"), p.grad().to(at::kFloat)),
                    Le(1e-6));
      trainer.optimizer->step(1e-2);
    });
  }
}

// Goal: bf16 matrices beside fp32 norms and biases in one unit train as in plain PyTorch. One rank computes the same
// bits. Several ranks sum in another order, and bf16 rounds.
TEST(EveryWorldSize, TrainMixedDtypesOfOneUnitLikePlainAutograd) {
  constexpr int kTraining = 50;
  constexpr double kMixedRate = 1e-3;
  const auto dtype_of = [](std::int64_t dims) { return dims < 2 ? at::kFloat : at::kBFloat16; };
  MixedReference reference([&](const at::Tensor& p) { return dtype_of(p.dim()); });
  std::vector<double> truth;
  for (int step = 0; step < kTraining; ++step) truth.push_back(reference.step(step, kMixedRate));
  ASSERT_LT(truth.back(), 0.9 * truth.front());
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      fsdp::ShardOptions options;
      options.precision.param_dtype = at::kBFloat16;
      options.precision.param_dtype_of = [&](const fsdp::ParameterInfo& info) {
        return dtype_of(static_cast<std::int64_t>(info.shape.size()));
      };
      Trainer trainer(mesh, options);
      const double tolerance = mesh.world_size() == 1 ? 0 : 1e-2;
      for (int step = 0; step < kTraining; ++step)
        EXPECT_THAT(relative(trainer.step(step, kMixedRate), truth[step]), Le(tolerance)) << "step " << step;
      for (const auto& [name, tensor] : trainer.sharded.gather_full_state()) {
        const at::Tensor want = reference.masters.model->named_parameters()[name];
        EXPECT_THAT(distance(tensor, want), Le(mesh.world_size() == 1 ? 0 : 5e-2)) << name;
      }
    });
  }
}

// Also frozen values in bf16, and a parameter that is frozen after it has trained.
TEST(Segments, ComeBackFromACheckpointAtAnotherWorldSize) {
  const TemporaryFolder folder;
  fsdp::CheckpointOptions where;
  where.folder = folder.path() / "checkpoints";
  fsdp::ShardOptions options;
  options.precision.param_dtype = at::kBFloat16;
  std::map<std::string, at::Tensor> saved;
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, options);
    trainer.step(0);
    trainer.model->blocks[1]->up.requires_grad_(false);
    trainer.step(1);
    fsdp::CheckpointState state;
    state.step = 2;
    fsdp::Checkpointer(trainer.sharded, *trainer.optimizer, where).save(state);
    const auto full = trainer.sharded.gather_full_state();
    if (mesh.rank() == 0) saved = full;
  });
  for (const int world_size : kWorldSizes) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, options, /*seed=*/8);
      ASSERT_TRUE(fsdp::Checkpointer(trainer.sharded, *trainer.optimizer, where).load_latest());
      for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
        EXPECT_TRUE(at::equal(tensor, saved.at(name))) << name;
      EXPECT_EQ(trainer.optimizer->steps(1, 1), 1);
      EXPECT_EQ(trainer.optimizer->steps(1, 0), 2);
      EXPECT_GT(trainable_part(*trainer.sharded.units()[1]).states().at("exp_avg").abs().max().item<double>(), 0);
    });
  }
}

}  // namespace
