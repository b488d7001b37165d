// Goal: a step of a sharded T5 is the step of a plain one, that of the relative bias included. Method: two ranks, each
// with half of the rows, blocks and root as units, with and without activation checkpointing; and one process.
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <string>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/ranks.h"
#include "tests/worker/small_llama.h"
#include "tests/worker/small_t5.h"
#include "worker/models/head_loss.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

using T5State = std::map<std::string, at::Tensor>;
using testing::drawn_t5;
using testing::small_ids;
using testing::small_t5;

constexpr double kT5Rate = 1e-2;

/// Four rows with padding on both sides.
/// Made once, and not on the threads of ranks, which share a generator.
struct T5Rows {
  T5Rows() {
    mask[1].narrow(0, 4, 3).fill_(0);
    mask[2].narrow(0, 0, 2).fill_(0);
    targets[2].narrow(0, 1, 4).fill_(data::order::kNoTarget);
  }
  double weight() const { return targets.ne(data::order::kNoTarget).sum().item<double>(); }

  at::Tensor ids = small_ids(4, 7), mask = at::ones({4, 7}, at::kLong), targets = small_ids(4, 5);
};

struct T5Step {
  double loss = 0;
  T5State gradients, weights;
};

enum class T5Recomputed { kNothing, kBlocks, kParts };

/// One step of AdamW of the mean loss over the rows of all ranks.
T5Step t5_step(fsdp::DeviceMesh& mesh, const spec::T5& config, const T5Rows& rows, T5Recomputed recomputed) {
  const auto model = drawn_t5(config);
  fsdp::ShardedModel sharded(model, mesh);
  for (const auto& block : model->blocks()) {
    const CallWrapper unit = wrapper_of(sharded.fully_shard(block));
    block->wrapper = recomputed == T5Recomputed::kBlocks ? nested(unit, recomputing(*block)) : unit;
    if (recomputed == T5Recomputed::kParts) block->attention_wrapper = block->mlp_wrapper = recomputing(*block);
  }
  fsdp::ShardOptions of_root;
  of_root.reshard_after_forward = false;
  model->wrapper = wrapper_of(sharded.fully_shard(model, of_root));
  fsdp::AdamW optimizer(sharded);

  const std::int64_t count = 4 / mesh.world_size();
  const auto mine = [&](const at::Tensor& all) { return all.narrow(0, mesh.rank() * count, count).clone(); };
  const at::Tensor loss = model->loss(mine(rows.ids), mine(rows.mask), mine(rows.targets)) / rows.weight();
  (loss * mesh.world_size()).backward();  // the engine takes the mean over the ranks
  T5Step done;
  done.loss = mesh.control().all_reduce(loss.item<double>());
  done.gradients = sharded.gather_full_gradients();
  optimizer.step(kT5Rate);
  done.weights = sharded.gather_full_state();
  return done;
}

void expect_equal_t5(const T5State& got, const T5State& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) {
    EXPECT_TRUE(at::allclose(got.at(name), value, 1e-4, 1e-6)) << what << " " << name;
  }
}

TEST(ShardedT5, AStepIsThatOfAPlainModel) {
  for (const bool tied : {true, false}) {
    const auto config = small_t5("gated-gelu", tied);
    const auto plain = drawn_t5(config);
    const T5Rows rows;
    const at::Tensor loss = plain->loss(rows.ids, rows.mask, rows.targets) / rows.weight();
    loss.backward();
    T5State gradients;
    for (const auto& item : plain->named_parameters()) gradients[item.key()] = item.value().grad();
    for (const char* stack : {"encoder", "decoder"}) {
      const auto name = std::string(stack) + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
      EXPECT_GT(gradients.at(name).abs().max().item<double>(), 1e-5) << name;
    }
    T5State weights;  // of one rank, which the engine's own tests compare with torch.optim
    for (const int ranks : {1, 2}) {
      for (const auto recomputed : {T5Recomputed::kNothing, T5Recomputed::kBlocks, T5Recomputed::kParts}) {
        run_ranks(ranks, [&](fsdp::DeviceMesh& mesh) {
          const T5Step done = t5_step(mesh, config, rows, recomputed);
          EXPECT_NEAR(done.loss, loss.item<double>(), 1e-5);
          expect_equal_t5(done.gradients, gradients, "gradient of");
          if (ranks == 1 && weights.empty()) weights = done.weights;
          expect_equal_t5(done.weights, weights, "weight");
        });
      }
    }
  }
}

}  // namespace
}  // namespace worker
