// Goal: the tensors of a rank take the bytes of "Bytes of a rank" in docs/engine.md, between steps and at the peaks of
// forward and backward, in each step alike.
// Method: LibTorch reports each allocation of a model whose activations are small; the formulas are written here.
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/memory/storage.h"
#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/chain_model.h"
#include "tests/fsdp/ranks.h"

namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

constexpr std::int64_t kColumns = 32, kBlockElements = 64 * kColumns * kColumns,
                       kRootElements = 16 * kColumns * kColumns;
constexpr int kBlocks = 4;
constexpr std::int64_t kElements = kBlocks * kBlockElements + kRootElements;
/// For activations, the gradient of one matrix and the few numbers of a step. A block has 256 KiB in fp32.
constexpr std::int64_t kSmall = 64 << 10;

/// Peaks above the bytes before the model was made, and what is left between steps.
struct Measured {
  std::vector<std::int64_t> forward, backward, between;  // by step, from the third on
};

Measured measure(fsdp::DeviceMesh& mesh, const fsdp::ShardOptions& options) {
  const auto bytes = std::make_shared<fsdp::TensorBytes>();
  const fsdp::CountTensorBytes counts(bytes);
  const auto model = std::make_shared<ChainModel>(kColumns, kBlocks, 64, 16);
  fsdp::ShardedModel sharded(model, mesh);
  model->shard(sharded, options);
  fsdp::AdamW optimizer(sharded, {});
  Measured measured;
  for (int step = 0; step < 7; ++step) {
    bytes->forget_peak();
    at::Tensor loss = model->forward(at::ones({1, kColumns}));
    const std::int64_t forward = bytes->peak();
    bytes->forget_peak();
    loss.backward();
    loss.reset();
    const std::int64_t backward = bytes->peak();
    optimizer.step(1e-3);
    sharded.zero_grad();
    if (step < 2) continue;
    measured.forward.push_back(forward);
    measured.backward.push_back(backward);
    measured.between.push_back(bytes->now());
  }
  return measured;
}

/// The letters of the formulas, in bytes.
struct Bytes {
  Bytes(int ranks, at::ScalarType parameters, at::ScalarType gradients, bool over_sockets) {
    const auto size = [](at::ScalarType type) { return static_cast<std::int64_t>(c10::elementSize(type)); };
    shard = kElements / ranks * 4;
    unit = kBlockElements * size(parameters);
    root = kRootElements * size(parameters);
    unit_gradients = kBlockElements * size(gradients);
    root_gradients = kRootElements * size(gradients);
    // A sum in another dtype than fp32 has memory of its own.
    scratch = gradients == at::kFloat ? 0 : kBlockElements / ranks * size(gradients);
    // Over sockets a rank receives a part from each peer. In shared memory the sum of more than two parts is made in
    // pieces, and needs memory for one.
    if (over_sockets) parts = unit_gradients / ranks * (ranks - 1);
    if (!over_sockets && ranks > 2) small += 128 << 10;
  }
  std::int64_t shard = 0, unit = 0, root = 0, unit_gradients = 0, root_gradients = 0, scratch = 0, parts = 0;
  std::int64_t small = kSmall;
};

void expect_bytes(const std::vector<std::int64_t>& got, std::int64_t want, std::int64_t small, const char* what) {
  EXPECT_THAT(got, Each(AllOf(Ge(want), Le(want + small)))) << what;
  EXPECT_THAT(got, Each(got.front())) << what << " differs from step to step";
}

struct Case {
  int ranks;
  at::ScalarType parameters, gradients;
  bool shared_memory;
};

const std::vector<Case> kCases = {{2, at::kFloat, at::kFloat, false},     {4, at::kFloat, at::kFloat, false},
                                  {2, at::kBFloat16, at::kFloat, false},  {2, at::kBFloat16, at::kBFloat16, false},
                                  {2, at::kFloat, at::kFloat, true},      {4, at::kBFloat16, at::kFloat, true},
                                  {2, at::kBFloat16, at::kBFloat16, true}};

void on_each(const fsdp::ShardOptions& given,
             const std::function<void(const Measured&, const Bytes&, const fsdp::ShardOptions&)>& check) {
  for (const Case& each : kCases) {
    for (const int depth : {0, 1, 2}) {
      fsdp::ShardOptions options = given;
      options.prefetch_depth = depth;
      options.precision.param_dtype = each.parameters;
      options.precision.reduce_dtype = each.gradients;
      const Bytes b(each.ranks, each.parameters, each.gradients, !each.shared_memory);
      run_ranks(
          each.ranks,
          [&](fsdp::DeviceMesh& mesh) {
            SCOPED_TRACE(std::string(c10::toString(each.parameters)) + ", gradients in " +
                         c10::toString(each.gradients) + (each.shared_memory ? ", shared memory" : ", sockets") +
                         ", depth " + std::to_string(depth));
            check(measure(mesh, options), b, options);
          },
          std::chrono::seconds(30), c10::kCPU, {}, each.shared_memory);
    }
  }
}

TEST(TensorBytes, AreThoseOfTheFormulaInEveryStep) {
  on_each({}, [](const Measured& measured, const Bytes& b, const fsdp::ShardOptions& options) {
    // Masters, gradients and two averages. The pools keep their memory.
    const std::int64_t persistent = 4 * b.shard + (1 + options.prefetch_depth) * b.unit + 2 * b.unit_gradients +
                                    b.root + b.root_gradients + b.scratch + b.parts;
    expect_bytes(measured.between, persistent, b.small, "between steps");
    expect_bytes(measured.forward, persistent, b.small, "forward");
    expect_bytes(measured.backward, persistent, b.small, "backward");
  });
}

TEST(TensorBytes, OfTightUnitsAreOneUnitOfGradientsAndNoneInForward) {
  fsdp::ShardOptions tight;
  tight.tight = true;
  on_each(tight, [](const Measured& measured, const Bytes& b, const fsdp::ShardOptions& options) {
    const std::int64_t averages = 2 * b.shard;
    const std::int64_t gathered = (1 + options.prefetch_depth) * b.unit + b.root;
    expect_bytes(measured.between, averages + b.shard + gathered, b.small, "between steps");
    expect_bytes(measured.forward, averages + b.shard + gathered, b.small, "forward");
    expect_bytes(measured.backward,
                 averages + 2 * b.shard + gathered + b.unit_gradients + b.root_gradients + b.scratch + b.parts, b.small,
                 "backward");
  });
}

}  // namespace
