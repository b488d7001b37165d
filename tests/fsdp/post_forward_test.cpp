// Goal: with reshard_to_ranks a rank keeps a part of what forward gathered, backward gathers among neighbours alone,
// and the training is that of full_shard to the bit. collective_counts_test.cpp has what is sent. Method: the small
// model on four and eight ranks, against the same without the option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::HasSubstr;

using State = std::map<std::string, at::Tensor>;

fsdp::ShardOptions resharded(int ranks) {
  fsdp::ShardOptions options;
  options.reshard_to_ranks = ranks;
  return options;
}

fsdp::MeshOptions on_axes(std::vector<fsdp::MeshAxis> axes, bool shared_memory = true) {
  fsdp::MeshOptions options;
  options.axes = std::move(axes);
  options.shared_memory = shared_memory;
  options.timeout = std::chrono::seconds(30);
  return options;
}

/// Steps with two backward passes, unused graphs, and forwards without a backward between them.
State trained(fsdp::DeviceMesh& mesh, const fsdp::ShardOptions& options) {
  Trainer trainer(mesh, options);
  for (int step = 0; step < 5; ++step) {
    if (step == 1) trainer.accumulate(tokens_of(100));
    if (step == 2) {
      trainer.sharded.set_requires_gradient_sync(false);
      trainer.accumulate(tokens_of(100));
      trainer.sharded.set_requires_gradient_sync(true);
    }
    if (step == 3) trainer.model->forward(part_of(tokens_of(7), mesh.rank(), mesh.world_size()));  // dropped
    if (step == 4) {
      const at::NoGradGuard no_grad;
      trainer.model->forward(part_of(tokens_of(7), mesh.rank(), mesh.world_size()));
    }
    trainer.step(step);
  }
  return trainer.sharded.gather_full_state();
}

void expect_equal(const State& got, const State& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) EXPECT_TRUE(at::equal(got.at(name), tensor)) << name;
}

struct Place {
  int ranks, neighbours;
  std::vector<fsdp::MeshAxis> axes;
};

const std::vector<Place> kPlaces = {
    {4, 2, {}}, {6, 3, {}}, {6, 2, {}}, {8, 4, {}}, {8, 2, {{"replicate", 2}, {"shard", 4}}}};

TEST(PostForward, ChangesNoBitOfATraining) {
  for (const Place& place : kPlaces) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      run_thread_ranks(
          place.ranks,
          [&](fsdp::DeviceMesh& mesh) {
            fsdp::ShardOptions plain, options = resharded(place.neighbours);
            plain.precision.param_dtype = options.precision.param_dtype = dtype;
            expect_equal(trained(mesh, options), trained(mesh, plain));
          },
          std::chrono::seconds(20), on_axes(place.axes));
    }
  }
}

TEST(PostForward, ChangesNoBitOverSocketsAndSharedMemory) {
  for (const bool shared_memory : {false, true}) {
    run_ranks(4, on_axes({}, shared_memory),
              [](fsdp::DeviceMesh& mesh) { expect_equal(trained(mesh, resharded(2)), trained(mesh, {})); });
  }
}

TEST(PostForward, GroupsNeighbours) {
  for (const Place& place : kPlaces) {
    run_thread_ranks(
        place.ranks,
        [&](fsdp::DeviceMesh& mesh) {
          const auto group = mesh.shard_group(place.neighbours);
          EXPECT_EQ(group, mesh.shard_group(place.neighbours)) << "made once";
          EXPECT_EQ(group->world_size(), place.neighbours);
          EXPECT_EQ(group->rank(), mesh.shard().rank() % place.neighbours);
          const int first = mesh.rank() / place.neighbours * place.neighbours;
          int sum = 0;
          for (int i = 0; i < place.neighbours; ++i) sum += first + i;
          EXPECT_EQ(group->all_reduce(mesh.rank()), sum);
        },
        std::chrono::seconds(20), on_axes(place.axes));
  }
}

TEST(PostForward, RefusesGroupsThatAreNoPart) {
  run_thread_ranks(4, [](fsdp::DeviceMesh& mesh) {
    for (const int ranks : {-2, 1, 3, 4, 8}) {
      const auto model = make_model();
      fsdp::ShardedModel sharded(model, mesh);
      EXPECT_THAT(
          error_of([&] { sharded.fully_shard(model, resharded(ranks)); }),
          HasSubstr("mesh: groups of " + std::to_string(ranks) +
                    " of the 4 ranks that parameters are sharded over: want a divisor of 4 other than 1 and 4"));
    }
  });
}

/// The gathered size of a unit, in fp32.
std::int64_t gathered(const fsdp::Unit& unit, bool trainable_only = false) {
  std::int64_t bytes = 0;
  for (const auto& segment : unit.segments())
    if (segment->key().trainable || !trainable_only) bytes += segment->layout().padded_numel() * 4;
  return bytes;
}

TEST(PostForward, TakesOneShareOfAllUnitsMore) {
  run_thread_ranks(4, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, resharded(2));
    const auto& units = trainer.sharded.units();
    const fsdp::Unit &block = *units[0], &root = *units.back();
    const std::int64_t share = gathered(block) / 2;
    const auto slots = 3 * ((share + 63) / 64 * 64);  // a slot of each block; the root stays gathered
    const std::int64_t want =
        2 * gathered(block) + 2 * gathered(block, true) + gathered(root) + gathered(root, true) + slots;
    trainer.step(0);
    for (int step = 1; step < 4; ++step) {
      trainer.step(step);
      EXPECT_EQ(trainer.sharded.memory().pool_bytes, want) << "step " << step;
      EXPECT_EQ(trainer.sharded.memory().gathered_bytes_now, 0);
    }
  });
}

TEST(PostForward, FollowsFrozenParametersAndGivenUpSteps) {
  run_thread_ranks(4, [](fsdp::DeviceMesh& mesh) {
    Trainer plain(mesh), other(mesh, resharded(2));
    for (int step = 0; step < 6; ++step) {
      for (Trainer* trainer : {&plain, &other}) {
        if (step == 2) {
          trainer->model->forward(part_of(tokens_of(3), mesh.rank(), mesh.world_size()));
          trainer->sharded.abandon_step();
        }
        trainer->model->blocks[1]->up.set_requires_grad(step < 2 || step > 3);
        trainer->step(step);
      }
    }
    expect_equal(other.sharded.gather_full_state(), plain.sharded.gather_full_state());
  });
}

// The part that a forward has left is of the old values. After a step nothing may be gathered from it.
TEST(PostForward, ForgetsThePartsWhenTheShardsChange) {
  run_thread_ranks(4, [](fsdp::DeviceMesh& mesh) {
    Trainer plain(mesh), other(mesh, resharded(2));
    for (Trainer* trainer : {&plain, &other}) {
      trainer->accumulate(tokens_of(0));
      trainer->model->forward(part_of(tokens_of(1), mesh.rank(), mesh.world_size()));  // leaves parts
      trainer->optimizer->step(1e-1);
      trainer->sharded.zero_grad();
    }
    EXPECT_EQ(other.step(1), plain.step(1));
    expect_equal(other.sharded.gather_full_state(), plain.sharded.gather_full_state());
  });
}

class PostForwardCheckpoint : public Checkpoint {};

TEST_F(PostForwardCheckpoint, ContinuesWithoutTheOptionAndWithIt) {
  for (const bool back : {false, true}) {
    std::filesystem::remove_all(options().folder);
    run_ranks(4, [&](fsdp::DeviceMesh& mesh) {
      Trainer whole(mesh, resharded(2)), next(mesh, back ? fsdp::ShardOptions() : resharded(2), /*seed=*/8);
      for (int step = 0; step < 2; ++step) whole.step(step);
      fsdp::Checkpointer(whole.sharded, *whole.optimizer, options()).save(state_of(2));
      ASSERT_TRUE(fsdp::Checkpointer(next.sharded, *next.optimizer, options()).load_latest());
      for (int step = 2; step < 4; ++step) {
        whole.step(step);
        next.step(step);
      }
      expect_equal(next.sharded.gather_full_state(), whole.sharded.gather_full_state());
    });
  }
}

}  // namespace
