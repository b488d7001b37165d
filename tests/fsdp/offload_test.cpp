// Goal: a model whose shards, gradients and states live on the CPU trains, saves and exports as any other, and holds
// nothing of them on its device. Method: on the CPU an offload makes the same copies within one memory, so every bit
// must be that of the training without it. gpu_test.cpp has the two memories.
#include "fsdp/memory/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/optim/grad_scaler.h"
#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::HasSubstr;

fsdp::ShardOptions offloaded(fsdp::ShardOptions options = {}) {
  options.offload.to_cpu = true;
  return options;
}

void expect_equal_states(Trainer& got, Trainer& wanted) {
  const auto truth = wanted.sharded.gather_full_state();
  for (const auto& [name, tensor] : got.sharded.gather_full_state())
    EXPECT_TRUE(at::equal(tensor, truth.at(name))) << name;
}

TEST(Offload, SaysWhereShardsLive) {
  const c10::Device gpu(c10::kCUDA, 3);
  EXPECT_EQ(fsdp::Offload{}.home(gpu), gpu);
  EXPECT_EQ(fsdp::Offload{.to_cpu = true}.home(gpu), c10::Device(c10::kCPU));
}

// With several ranks there are two backward passes a step: the second adds to gradients that have left the device. One
// rank in fp32 sums both in one buffer without the offload, which rounds in another order.
TEST(Offload, ChangesNoBitOfATraining) {
  for (const int world_size : kWorldSizes) {
    for (const bool replicated : {false, true}) {
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        fsdp::MeshOptions mesh_options;
        if (replicated) mesh_options.axes = {{"replicate", world_size}};
        run_thread_ranks(
            world_size,
            [&](fsdp::DeviceMesh& mesh) {
              const fsdp::ShardOptions options{.precision = {.param_dtype = type, .reduce_dtype = type}};
              Trainer plain(mesh, options), other(mesh, offloaded(options));
              for (int step = 0; step < 4; ++step) {
                for (Trainer* trainer : {&plain, &other}) {
                  for (int micro = 0; micro < (world_size == 1 ? 1 : 2); ++micro)
                    trainer->accumulate(tokens_of(2 * step + micro));
                  const auto norm = fsdp::gradient_norm(trainer->sharded, 0.5);
                  trainer->optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
                  trainer->sharded.zero_grad();
                }
              }
              expect_equal_states(other, plain);
            },
            std::chrono::seconds(20), mesh_options);
      }
    }
  }
}

TEST(Offload, LeavesNothingOfTheShardInTheGatheredMemory) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, offloaded());
    const auto& block = *trainer.model->blocks[0];
    EXPECT_EQ(fsdp::storage_bytes(block.up), 0) << "even one rank frees what it has gathered";
    trainer.accumulate(tokens_of(0));
    EXPECT_EQ(fsdp::storage_bytes(block.up), 0);
    EXPECT_EQ(fsdp::storage_bytes(block.up.grad()), 0) << "the gradient has left, too";
    EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, 0);
    EXPECT_EQ(trainer.sharded.memory().unreduced_bytes_now, 0);
    EXPECT_EQ(trainer.sharded.home(), c10::Device(c10::kCPU));
    EXPECT_TRUE(trainable_part(*trainer.sharded.units()[0]).gradient_shard().is_cpu());
  });
}

TEST(Offload, FollowsAChangeOfWhatTrains) {
  for (const int world_size : {1, 2}) {
    run_thread_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer plain(mesh), other(mesh, offloaded());
      for (int step = 0; step < 6; ++step) {
        for (Trainer* trainer : {&plain, &other}) {
          trainer->model->blocks[1]->up.set_requires_grad(step < 2 || step > 3);
          trainer->step(step);
        }
      }
      expect_equal_states(other, plain);
    });
  }
}

class OffloadedCheckpoint : public Checkpoint {};

TEST_F(OffloadedCheckpoint, ContinuesWithAndWithoutTheOffload) {
  for (const bool back : {false, true}) {
    std::filesystem::remove_all(options().folder);
    run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer whole(mesh, offloaded()), next(mesh, back ? fsdp::ShardOptions() : offloaded(), /*seed=*/8);
      for (int step = 0; step < 3; ++step) whole.step(step);
      fsdp::Checkpointer(whole.sharded, *whole.optimizer, options()).save(state_of(3));
      ASSERT_TRUE(fsdp::Checkpointer(next.sharded, *next.optimizer, options()).load_latest());
      for (int step = 3; step < 6; ++step) {
        whole.step(step);
        next.step(step);
      }
      expect_equal_states(next, whole);
    });
  }
}

TEST(Offload, OfUnitsOfOneModelMustBeTheSame) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    const auto model = make_model();
    fsdp::ShardedModel sharded(model, mesh);
    sharded.fully_shard(model->blocks[0]);
    EXPECT_THAT(error_of([&] { sharded.fully_shard(model, offloaded()); }),
                HasSubstr("fully_shard: unit root has another offload than unit block0"));
  });
}

}  // namespace
