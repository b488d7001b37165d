// Goal: a dry step allocates what a real step allocates, and computes nothing.
// Method: the small model of the other tests, really and dry, with LibTorch's reports of memory as the judge.
#include "fsdp/engine/dry_run.h"

#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "fsdp/comm/transport.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/small_model.h"

namespace {

class Reported : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    now += size;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t now = 0, peak = 0;
};

struct Bytes {
  std::int64_t peak = 0, kept = 0, pool = 0;
  bool operator==(const Bytes&) const = default;
};

/// The bytes that three steps of a rank need, over a transport that moves nothing.
Bytes bytes_of_steps(int world_size, at::ScalarType dtype, bool dry) {
  const auto reported = std::make_shared<Reported>();
  const c10::DebugInfoGuard counts(c10::DebugInfoKind::PROFILER_STATE, reported);
  fsdp::DeviceMesh mesh(
      0, world_size, [](const fsdp::MeshGroup& group) { return fsdp::make_still_transport(group.rank, group.size); });
  fsdp::ShardOptions options;
  options.precision.param_dtype = dtype;
  std::optional<fsdp::DryRunGuard> guard;
  if (dry) guard.emplace();
  Trainer trainer(mesh, options);
  for (int step = 0; step < 3; ++step) trainer.step(step);
  return {reported->peak, reported->now, trainer.sharded.memory().pool_bytes};
}

TEST(DryRun, AllocatesWhatARealStepAllocates) {
  for (const int world_size : {1, 2, 5}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(std::to_string(world_size) + " ranks in " + c10::toString(dtype));
      const Bytes dry = bytes_of_steps(world_size, dtype, true), real = bytes_of_steps(world_size, dtype, false);
      EXPECT_EQ(dry.kept, real.kept);
      EXPECT_EQ(dry.pool, real.pool);
      // LibTorch's products in bf16 have buffers of their own, which count in a model of a few KiB.
      const double off = dtype == at::kFloat ? 0.02 : 0.2;
      EXPECT_NEAR(static_cast<double>(dry.peak), static_cast<double>(real.peak), off * static_cast<double>(real.peak));
    }
  }
}

TEST(DryRun, LeavesWeightsAlone) {
  torch::nn::Linear line(4, 3);
  const at::Tensor before = line->weight.detach().clone(), x = at::ones({2, 4});
  {
    const fsdp::DryRunGuard dry;
    const at::Tensor loss = line->forward(x).square().sum();
    loss.backward();
    EXPECT_EQ(line->weight.grad().sizes(), before.sizes());
    const torch::NoGradGuard no_grad;
    line->weight.sub_(line->weight.grad());
    line->weight.fill_(7);
    EXPECT_EQ(loss.item<double>(), 1) << "values are not known";
  }
  EXPECT_TRUE(at::equal(line->weight, before));
  EXPECT_EQ((x + x).sum().item<double>(), 16) << "the guard is gone";
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST(DryRun, TouchesNoMemory) {
  const std::int64_t before = resident_bytes();
  const fsdp::DryRunGuard dry;
  const at::Tensor weight = at::randn({1 << 15, 1 << 14}).requires_grad_();  // 2 GiB
  const at::Tensor x = at::ones({4096, 1 << 14});
  at::gelu(at::matmul(x, weight.t())).sum().backward();
  EXPECT_EQ(weight.grad().nbytes(), weight.nbytes());
  EXPECT_LT(resident_bytes() - before, 64 << 20);
}

TEST(DryRun, GivesResultsTheirSizes) {
  const fsdp::DryRunGuard dry;
  const at::Tensor a = at::randn({3, 1, 5}), b = at::randn({4, 1}), ids = at::zeros({2, 7}, at::kLong);
  EXPECT_EQ((a + b).sizes(), at::IntArrayRef({3, 4, 5}));
  EXPECT_EQ(at::where(b > 0, a, b).sizes(), at::IntArrayRef({3, 4, 5}));
  EXPECT_EQ(at::embedding(at::randn({9, 6}), ids).sizes(), at::IntArrayRef({2, 7, 6}));
  EXPECT_EQ(at::arange(0, 10, 3).numel(), 4);
  EXPECT_EQ(at::cat({a, a}, 1).sizes(), at::IntArrayRef({3, 2, 5}));
  EXPECT_EQ(at::linear(a, at::randn({8, 5})).sizes(), at::IntArrayRef({3, 1, 8}));
  const at::Tensor gain = at::ones({5}).requires_grad_();
  const at::Tensor normal = at::layer_norm(a, {5}, gain);
  EXPECT_EQ(normal.sizes(), a.sizes());
  normal.sum().backward();
  EXPECT_EQ(gain.grad().sizes(), gain.sizes());
  EXPECT_EQ(at::zeros({40}).sum().item<double>(), 1);
  const auto small = at::zeros({40}, at::kLong);
  EXPECT_EQ(small.const_data_ptr<std::int64_t>()[39], 0) << "the host reads small tables";
}

TEST(DryRun, NamesAnOperationWhoseSizesItDoesNotKnow) {
  const fsdp::DryRunGuard dry;
  EXPECT_THAT(error_of([] { at::masked_select(at::ones({4}), at::ones({4}, at::kBool)); }),
              ::testing::HasSubstr("what aten::masked_select returns"));
}

}  // namespace
