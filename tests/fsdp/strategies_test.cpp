// Goal: how parameters are spread over ranks changes memory and traffic, and not one bit of the training.
// Method: the small model, trained on four ranks under each strategy; counts and bytes come from the formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::Le;

constexpr int kRanks = 4, kSteps = 6;

struct Strategy {
  const char* name;
  std::vector<fsdp::MeshAxis> axes;
  bool reshard_after_forward = true;
  bool reshard_after_backward = true;
  int prefetch_depth = 1;
  std::optional<int> backward_prefetch_depth = {};
  bool tight = false;
  int reshard_to_ranks = 0;
};

const Strategy kFullShard{"full_shard", {}};
const Strategy kHybrid{"hybrid_shard", {{"replicate", 2}, {"shard", 2}}};
const Strategy kNoShard{"no_shard", {{"replicate", 4}}};
const std::vector<Strategy> kStrategies = {
    kFullShard,
    {"shard_grad_op", {}, false},
    {"zero1", {}, false, false},
    {"kept after backward", {}, true, false},
    {"without prefetch", {}, true, true, 0},
    {"deep prefetch", {}, true, true, 3},
    {"prefetch in backward alone", {}, true, true, 0, 2},
    {"tight", {}, true, true, 1, {}, true},
    {"resharded to 2 ranks", {}, true, true, 1, {}, false, 2},
    {"resharded to 2 ranks, kept after backward, tight", {}, true, false, 2, {}, true, 2},
    {"hybrid_shard, tight", {{"replicate", 2}, {"shard", 2}}, true, true, 1, {}, true},
    kHybrid,
    {"hybrid_shard, gathered until backward", {{"replicate", 2}, {"shard", 2}}, false},
    {"hybrid_shard of whole steps", {{"replicate", 2}, {"shard", 2}}, false, false},
    kNoShard};

fsdp::ShardOptions options_of(const Strategy& strategy) {
  fsdp::ShardOptions options;
  options.reshard_after_forward = strategy.reshard_after_forward;
  options.reshard_after_backward = strategy.reshard_after_backward;
  options.prefetch_depth = strategy.prefetch_depth;
  options.backward_prefetch_depth = strategy.backward_prefetch_depth;
  options.tight = strategy.tight;
  options.reshard_to_ranks = strategy.reshard_to_ranks;
  return options;
}

using State = std::map<std::string, at::Tensor>;
enum class Over { kThreads, kSockets, kSharedMemory };

void run_over(Over transport, const Strategy& strategy, const std::function<void(fsdp::DeviceMesh&)>& body) {
  if (transport == Over::kThreads) {
    fsdp::MeshOptions options;
    options.axes = strategy.axes;
    return run_thread_ranks(kRanks, body, std::chrono::seconds(20), options);
  }
  run_ranks(kRanks, body, std::chrono::seconds(30), c10::kCPU, strategy.axes, transport == Over::kSharedMemory);
}

/// The parameters after some steps, the second of two micro-batches.
State trained(const Strategy& strategy, at::ScalarType dtype = at::kFloat, Over transport = Over::kThreads) {
  State state;
  std::mutex mutex;
  run_over(transport, strategy, [&](fsdp::DeviceMesh& mesh) {
    auto options = options_of(strategy);
    options.precision.reduce_dtype = dtype;
    Trainer trainer(mesh, options);
    for (int step = 0; step < kSteps; ++step) {
      if (step == 1) trainer.accumulate(tokens_of(100));  // reduced twice in one step
      if (step == 2) {
        trainer.sharded.set_requires_gradient_sync(false);
        trainer.accumulate(tokens_of(100));
        trainer.sharded.set_requires_gradient_sync(true);
      }
      trainer.step(step);
    }
    auto mine = trainer.sharded.gather_full_state();
    const std::lock_guard<std::mutex> lock(mutex);
    if (state.empty()) state = mine;
    for (const auto& [name, tensor] : mine) {
      EXPECT_TRUE(at::equal(tensor, state.at(name))) << strategy.name << ": ranks differ in " << name;
    }
  });
  return state;
}

void expect_equal(const State& got, const State& want, const std::string& which) {
  for (const auto& [name, tensor] : want) {
    EXPECT_TRUE(at::equal(got.at(name), tensor))
        << which << ": " << name << " differs by " << distance(got.at(name), tensor);
  }
}

/// The parameters after plain steps under kFullShard.
State trained_plainly(int steps) {
  State state;
  std::mutex mutex;
  run_thread_ranks(kRanks, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    for (int step = 0; step < steps; ++step) trainer.step(step);
    auto mine = trainer.sharded.gather_full_state();
    const std::lock_guard<std::mutex> lock(mutex);
    state = std::move(mine);
  });
  return state;
}

TEST(Strategies, AreBitwiseEqual) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const State want = trained(kFullShard, dtype);
    for (const Strategy& strategy : kStrategies)
      expect_equal(trained(strategy, dtype), want, strategy.name + (", " + std::string(c10::toString(dtype))));
  }
}

TEST(Strategies, AreBitwiseEqualOverSharedMemory) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const State want = trained(kFullShard, dtype);
    for (const Strategy& strategy : kStrategies)
      expect_equal(trained(strategy, dtype, Over::kSharedMemory), want, strategy.name);
  }
}

TEST(Strategies, AreBitwiseEqualOverSockets) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const State want = trained(kFullShard, dtype);
    for (const Strategy& strategy : kStrategies)
      expect_equal(trained(strategy, dtype, Over::kSockets), want, strategy.name);
  }
}

TEST(Strategies, LearnLikeTheUnshardedModel) {
  Reference reference;
  std::vector<double> truth;
  for (int step = 0; step < kSteps; ++step) truth.push_back(reference.step(step));
  for (const Strategy& strategy : {kHybrid, kNoShard}) {
    run_ranks(
        kRanks,
        [&](fsdp::DeviceMesh& mesh) {
          Trainer trainer(mesh, options_of(strategy));
          for (int step = 0; step < kSteps; ++step)
            EXPECT_THAT(relative(trainer.step(step), truth[step]), Le(1e-5)) << strategy.name << " step " << step;
        },
        std::chrono::seconds(30), c10::kCPU, strategy.axes);
  }
}

// With reshard_to_ranks two groups send: see collective_counts_test.cpp.
TEST(Strategies, SendTheBytesOfTheirFormula) {
  for (const Strategy& strategy : kStrategies) {
    if (strategy.reshard_to_ranks > 0) continue;
    fsdp::MeshOptions mesh_options;
    mesh_options.axes = strategy.axes;
    run_thread_ranks(
        kRanks,
        [&](fsdp::DeviceMesh& mesh) {
          Trainer trainer(mesh, options_of(strategy));
          for (int step = 0; step < 2; ++step) trainer.step(step);  // the order is known then
          const auto sent = [&] {
            return mesh.shard().wire_bytes() + (mesh.replicate() == nullptr ? 0 : mesh.replicate()->wire_bytes());
          };
          const std::int64_t before = sent();
          trainer.sharded.set_requires_gradient_sync(false);
          trainer.accumulate(tokens_of(100));
          trainer.sharded.set_requires_gradient_sync(true);
          trainer.step(2);
          const std::int64_t shards = mesh.shard().world_size();
          const std::int64_t copies = mesh.replicate() == nullptr ? 1 : mesh.replicate()->world_size();
          std::int64_t want = 0;
          for (const auto& unit : trainer.sharded.units()) {
            // Gathers of two micro-batches. What stays after backward need not be gathered for the second.
            const auto& options = unit->options();
            const int each = options.reshard_after_forward ? 2 : 1;
            const int gathers = options.reshard_after_backward ? 2 * each : 2 * each - 1;
            for (const auto& segment : unit->segments()) {
              const std::int64_t chunk = segment->layout().chunk() * 4;
              want += gathers * chunk * (shards - 1);
              if (segment->key().trainable) want += chunk * (shards - 1) + 2 * chunk * (copies - 1) / copies;
            }
          }
          EXPECT_EQ(sent() - before, want) << strategy.name;
        },
        std::chrono::seconds(20), mesh_options);
  }
}

class StrategyCheckpoints : public Checkpoint {};

TEST_F(StrategyCheckpoints, OfOneStrategyContinueUnderEveryOther) {
  const State want = trained_plainly(4);
  for (const Strategy& from : {kFullShard, kHybrid, kNoShard}) {
    const auto here = options();
    std::filesystem::remove_all(here.folder);
    run_ranks(
        kRanks,
        [&](fsdp::DeviceMesh& mesh) {
          Trainer trainer(mesh, options_of(from));
          for (int step = 0; step < 2; ++step) trainer.step(step);
          fsdp::Checkpointer(trainer.sharded, *trainer.optimizer, here).save(state_of(2));
        },
        std::chrono::seconds(30), c10::kCPU, from.axes);
    const std::size_t shards = from.axes.empty() ? kRanks : kRanks / static_cast<std::size_t>(from.axes[0].size);
    EXPECT_EQ(names_in(step_path(2)).size(), shards + 1) << "replicas write nothing: " << from.name;
    for (const Strategy& to : {kFullShard, kHybrid, kNoShard}) {
      run_ranks(
          kRanks,
          [&](fsdp::DeviceMesh& mesh) {
            Trainer trainer(mesh, options_of(to), 99);
            const auto loaded = fsdp::Checkpointer(trainer.sharded, *trainer.optimizer, here).load_latest();
            ASSERT_TRUE(loaded);
            for (int step = 2; step < 4; ++step) trainer.step(step);
            for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
              EXPECT_TRUE(at::equal(tensor, want.at(name))) << from.name << " to " << to.name << ": " << name;
          },
          std::chrono::seconds(30), c10::kCPU, to.axes);
    }
  }
}

TEST(Strategies, UnitsThatAreNamedAreGatheredAhead) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    fsdp::ShardOptions options;
    options.prefetch_depth = 0;
    Trainer trainer(mesh, options);
    const auto& units = trainer.sharded.units();
    units[0]->set_forward_prefetch({units[1], units[2]});
    units[2]->set_backward_prefetch({units[1]});
    for (int step = 0; step < 2; ++step) {
      const std::vector<std::int64_t> before{units[0]->prefetches(), units[1]->prefetches(), units[2]->prefetches()};
      trainer.step(step);
      EXPECT_EQ(units[0]->prefetches() - before[0], 0);
      EXPECT_EQ(units[1]->prefetches() - before[1], 2) << "in forward and in backward, from the first step on";
      EXPECT_EQ(units[2]->prefetches() - before[2], 1);
    }
  });
}

TEST(Strategies, OfWholeCopiesHoldNoGatheredParameters) {
  fsdp::MeshOptions options;
  options.axes = kNoShard.axes;
  run_thread_ranks(
      kRanks,
      [](fsdp::DeviceMesh& mesh) {
        Trainer trainer(mesh);
        for (int step = 0; step < 3; ++step) trainer.step(step);
        EXPECT_EQ(trainer.sharded.memory().gathered_bytes_peak, 0);
        EXPECT_EQ(mesh.shard().collectives(), 0);
      },
      std::chrono::seconds(20), options);
}

}  // namespace
