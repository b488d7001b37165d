// Goal: the kernels compute what LibTorch's operations compute, for every dtype and shape, forwards and backwards.
// Method: both on the GPU, the operations in fp64 from the same inputs.
#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/expected_gpus.h"
#include "tests/worker/packed_rows.h"
#include "worker/models/fused_ops.h"
#include "worker/models/head_loss.h"
#include "worker/models/layers/attention.h"
#include "worker/models/ops.h"

namespace worker {
namespace {

using ::testing::Le;

class GpuOps : public ::testing::Test {
 protected:
  void SetUp() override {
    MUSTER_NEED_GPUS(1, c10::cuda::device_count());
    at::manual_seed(5);
  }
};

at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, at::TensorOptions(at::kFloat).device(at::kCUDA)).to(dtype).requires_grad_();
}

/// The largest difference, relative to the largest element.
double distance(const at::Tensor& got, const at::Tensor& want) {
  return ((got.to(at::kDouble) - want).abs().max() / want.abs().max()).item<double>();
}

/// Half a unit in the last place, with room for what fp32 loses on the way.
double tolerance(at::ScalarType dtype) {
  return dtype == at::kFloat ? 1e-6 : dtype == at::kHalf ? 1e-3 : 8e-3;
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kHalf, at::kBFloat16};

TEST_F(GpuOps, RopeEqualsTheOperations) {
  for (const auto type : kTypes) {
    for (const auto& shape :
         std::vector<std::vector<std::int64_t>>{{2, 7, 3, 64}, {1, 5, 1, 6}, {3, 1, 2, 128}, {1, 0, 2, 8}}) {
      ASSERT_TRUE(has_kernels(at::kCUDA, type));
      const RopeTable table = rope_table(0, shape[1], {.dim = shape[3]}, type, at::kCUDA);
      const RopeTable wide{table.cos.to(at::kDouble), table.sin.to(at::kDouble)};
      const at::Tensor x = random(shape, type), x_wide = x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor y = apply_rope(x, table), y_wide = apply_rope(x_wide, wide);
      ASSERT_EQ(y.scalar_type(), type);
      const at::Tensor of_y = random(shape, type).detach();
      y.backward(of_y);
      y_wide.backward(of_y.to(at::kDouble));
      if (x.numel() == 0) continue;
      EXPECT_THAT(distance(y, y_wide), Le(tolerance(type))) << type << " " << at::IntArrayRef(shape);
      EXPECT_THAT(distance(x.grad(), x_wide.grad()), Le(tolerance(type))) << type << " " << at::IntArrayRef(shape);
    }
  }
}

TEST_F(GpuOps, RopeTakesTablesOfRows) {
  for (const auto type : kTypes) {
    const at::Tensor positions = at::randint(90, {3, 7}, at::TensorOptions(at::kLong).device(at::kCUDA));
    const RopeTable table = rope_table(positions, {.dim = 64}, type);
    const at::Tensor x = random({3, 7, 2, 64}, type), x_wide = x.detach().to(at::kDouble).requires_grad_();
    const at::Tensor y = apply_rope(x, table),
                     y_wide = apply_rope(x_wide, {table.cos.to(at::kDouble), table.sin.to(at::kDouble)});
    const at::Tensor of_y = random({3, 7, 2, 64}, type).detach();
    y.backward(of_y);
    y_wide.backward(of_y.to(at::kDouble));
    EXPECT_THAT(distance(y, y_wide), Le(tolerance(type))) << type;
    EXPECT_THAT(distance(x.grad(), x_wide.grad()), Le(tolerance(type))) << type;
  }
}

TEST_F(GpuOps, RowsOfOneProductAreSplitAsThreeAre) {
  for (const auto type : kTypes) {
    for (const std::int64_t dim : {64, 6}) {
      const RopeTable table = rope_table(0, 5, {.dim = dim}, type, at::kCUDA);
      const at::Tensor qkv = random({2, 5, 8 * dim}, type), alone = qkv.detach().clone().requires_grad_();
      const SplitHeads got = split_rotated(qkv, table, 4, 2);
      const at::Tensor heads = alone.view({2, 5, 8, dim});
      const SplitHeads want{apply_rope(heads.narrow(2, 0, 4), table), apply_rope(heads.narrow(2, 4, 2), table),
                            heads.narrow(2, 6, 2)};
      EXPECT_TRUE(at::equal(got.q, want.q) && at::equal(got.k, want.k) && at::equal(got.v, want.v)) << type;
      const at::Tensor of_q = random(want.q.sizes(), type).detach(), of_k = random(want.k.sizes(), type).detach();
      torch::autograd::backward({got.q, got.k, got.v}, {of_q, of_k, of_k});
      torch::autograd::backward({want.q, want.k, want.v}, {of_q, of_k, of_k});
      EXPECT_TRUE(at::equal(qkv.grad(), alone.grad())) << type;
    }
  }
}

TEST_F(GpuOps, SwigluTakesGateAndUpSideBySide) {
  for (const auto type : kTypes) {
    for (const std::int64_t count : {7, 64, 1000}) {
      const at::Tensor both = random({3, 2 * count}, type);
      const at::Tensor gate = both.detach().narrow(-1, 0, count).contiguous().requires_grad_(),
                       up = both.detach().narrow(-1, count, count).contiguous().requires_grad_();
      const at::Tensor got = swiglu(both), want = swiglu(gate, up);
      EXPECT_TRUE(at::equal(got, want)) << type << " " << count;
      const at::Tensor of_y = random({3, count}, type).detach();
      got.backward(of_y);
      want.backward(of_y);
      EXPECT_TRUE(at::equal(both.grad(), at::cat({gate.grad(), up.grad()}, -1))) << type << " " << count;
    }
  }
}

/// A place of fp32 for the gradient of a weight in bf16, as an engine with fp32 reductions has it.
TEST_F(GpuOps, GradientsOfNarrowWeightsAreSummedInFp32) {
  struct Hook : torch::autograd::PostAccumulateGradHook {
    void operator()(const at::Tensor&) override {}
  };
  static at::Tensor place;
  const at::Tensor x = random({2, 9, 24}, at::kBFloat16).detach(), weight = random({16, 24}, at::kBFloat16);
  const at::Tensor d = random({2, 9, 16}, at::kBFloat16).detach();
  const at::Tensor want = d.flatten(0, 1).to(at::kDouble).t().mm(x.flatten(0, 1).to(at::kDouble));
  place = at::zeros({16, 24}, at::TensorOptions(at::kFloat).device(at::kCUDA));
  const at::Tensor laid = place;
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<Hook>());
  use_gradient_places([](const at::Tensor&, bool any_dtype) -> std::optional<at::Tensor> {
    return any_dtype ? std::exchange(place, at::Tensor()) : at::Tensor();
  });
  for (int pass = 1; pass <= 2; ++pass) {
    worker::linear(x, weight).backward(d);
    EXPECT_TRUE(weight.grad().is_same(laid));
    EXPECT_THAT(distance(laid, want * pass), Le(1e-5)) << "no rounding to bf16";
  }
  use_gradient_places(nullptr);
}

TEST_F(GpuOps, RopeTakesWhatIsNotContiguous) {
  const RopeTable table = rope_table(0, 5, {.dim = 16}, at::kFloat, at::kCUDA);
  const at::Tensor x = random({2, 4, 5, 16}, at::kFloat);
  const at::Tensor got = apply_rope(x.transpose(1, 2), table);
  EXPECT_TRUE(at::equal(got, apply_rope(x.transpose(1, 2).contiguous(), table)));
  const at::Tensor of_y = random({2, 4, 5, 16}, at::kFloat).detach().transpose(1, 2);
  got.backward(of_y);
  EXPECT_TRUE(at::allclose(x.grad().transpose(1, 2), apply_rope(of_y, {table.cos, -table.sin}), 1e-6, 1e-6));
}

TEST_F(GpuOps, SwigluEqualsTheOperations) {
  for (const auto type : kTypes) {
    for (const std::int64_t count : {1, 7, 64, 1000, 4099}) {
      const at::Tensor gate = random({3, count}, type), up = random({3, count}, type);
      const at::Tensor g = gate.detach().to(at::kDouble).requires_grad_(),
                       u = up.detach().to(at::kDouble).requires_grad_();
      const at::Tensor y = swiglu(gate, up), y_wide = swiglu(g, u);
      const at::Tensor of_y = random({3, count}, type).detach();
      y.backward(of_y);
      y_wide.backward(of_y.to(at::kDouble));
      EXPECT_THAT(distance(y, y_wide), Le(tolerance(type))) << type << " " << count;
      EXPECT_THAT(distance(gate.grad(), g.grad()), Le(tolerance(type))) << type << " " << count;
      EXPECT_THAT(distance(up.grad(), u.grad()), Le(tolerance(type))) << type << " " << count;
    }
  }
}

TEST_F(GpuOps, TheLossOfTheHeadIsThatOfLibTorch) {
  for (const auto type : kTypes) {
    for (const std::int64_t vocab : {37, 1024, 5003}) {
      for (const std::int64_t most_logits : {std::int64_t{0}, vocab * 3}) {
        const at::Tensor x = random({2, 9, 24}, type), weight = random({vocab, 24}, type);
        const at::Tensor targets = at::randint(vocab, {2, 9}, at::TensorOptions(at::kLong).device(at::kCUDA));
        targets[0][1] = data::order::kNoTarget;
        const at::Tensor x_wide = x.detach().to(at::kDouble).requires_grad_();
        const at::Tensor weight_wide = weight.detach().to(at::kDouble).requires_grad_();
        const at::Tensor loss = linear_cross_entropy(x, weight, targets, {}, most_logits);
        const at::Tensor want = at::cross_entropy_loss(at::linear(x_wide, weight_wide).flatten(0, 1), targets.flatten(),
                                                       {}, at::Reduction::Sum, data::order::kNoTarget);
        (loss * 0.25).backward();
        (want * 0.25).backward();
        const double most = type == at::kFloat ? 1e-5 : type == at::kHalf ? 4e-3 : 3e-2;
        EXPECT_THAT(distance(loss.detach(), want.detach()), Le(most)) << type << " " << vocab;
        EXPECT_THAT(distance(x.grad(), x_wide.grad()), Le(most)) << type << " " << vocab;
        EXPECT_THAT(distance(weight.grad(), weight_wide.grad()), Le(most)) << type << " " << vocab;
        const at::NoGradGuard no_grad;
        EXPECT_THAT(distance(linear_cross_entropy(x, weight, targets, {}, most_logits), want.detach()), Le(most));
      }
    }
  }
}

/// Heads of 64 in fp16 and bf16 take the kernel for lists of lengths, the others one call a document.
TEST_F(GpuOps, AttentionOfDocumentsEqualsADenseMask) {
  const auto on_host = testing::packed_rows({{5, 1, 90}, {128}, {2, 2}}, 128);
  const auto documents = std::make_shared<const Documents>(Documents{on_host->lengths, on_host->starts.to(at::kCUDA)});
  const at::Tensor dense = testing::dense_mask(*on_host, 128).to(at::kCUDA);
  for (const auto type : kTypes) {
    for (const std::int64_t size : {64, 12}) {
      std::vector<at::Tensor> leaves, wide;
      for (const std::int64_t heads : {6, 2, 2}) {
        leaves.push_back(random({3, 128, heads * size}, type));
        wide.push_back(leaves.back().detach().to(at::kDouble).requires_grad_());
      }
      const auto attend = [&](const std::vector<at::Tensor>& x, const Mask& mask) {
        return attention(split_heads(x[0], 6), split_heads(x[1], 2), split_heads(x[2], 2), mask, {}, 0, true);
      };
      const at::Tensor got = attend(leaves, {.documents = documents}), want = attend(wide, {.bias = dense});
      const double most = type == at::kFloat ? 1e-4 : type == at::kHalf ? 4e-3 : 3e-2;
      EXPECT_THAT(distance(got, want), Le(most)) << type << " " << size;
      const at::Tensor of_out = random({3, 6, 128, size}, type).detach();
      got.backward(of_out);
      want.backward(of_out.to(at::kDouble));
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_THAT(distance(leaves[i].grad(), wide[i].grad()), Le(most))
            << type << " " << size << ", of q, k, v: " << i;
    }
  }
}

TEST_F(GpuOps, HugeGatesStayFinite) {
  const at::Tensor gate = at::tensor({-1e4F, 1e4F, -200.0F, 0.0F}).to(at::kCUDA).requires_grad_();
  const at::Tensor y = swiglu(gate, at::ones_like(gate));
  y.sum().backward();
  EXPECT_TRUE(at::isfinite(y).all().item<bool>());
  EXPECT_TRUE(at::isfinite(gate.grad()).all().item<bool>());
  EXPECT_EQ(y[1].item<float>(), 1e4F);
}

TEST_F(GpuOps, ASecondDerivativeIsThatOfTheOperations) {
  const at::Tensor gate = random({9}, at::kFloat), up = random({9}, at::kFloat);
  const auto second = [](const at::Tensor& g, const at::Tensor& u, const at::Tensor& y) {
    const auto first = torch::autograd::grad({y.sum()}, {g, u}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    return torch::autograd::grad({(first[0] * first[0]).sum() + first[1].sum()}, {g});
  };
  const at::Tensor want = second(gate, up, at::silu(gate) * up)[0];
  EXPECT_TRUE(at::allclose(second(gate, up, swiglu(gate, up))[0], want, 1e-4, 1e-5));
}

}  // namespace
}  // namespace worker
