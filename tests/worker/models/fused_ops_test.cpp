// Goal: the kernels of the CPU compute what LibTorch's operations compute, forwards and backwards, and layers whose
// weights follow each other in memory are one product. Method: formulas in fp64 from the same inputs, for shapes with
// and without a rest of a pack.
#include "worker/models/fused_ops.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/engine/dry_run.h"
#include "worker/models/layers/attention.h"
#include "worker/models/ops.h"

namespace worker {
namespace {

using ::testing::Le;
using ::testing::Lt;

at::Tensor leaf(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape).to(dtype).requires_grad_();
}

at::Tensor in_double(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).requires_grad_();
}

/// The largest difference, relative to the largest element.
double difference(const at::Tensor& got, const at::Tensor& want) {
  return ((got.detach().to(at::kDouble) - want.detach()).abs().max() / want.detach().abs().max()).item<double>();
}

/// Some units in the last place of fp32, or half a unit of bf16.
double most_of(at::ScalarType dtype) {
  return dtype == at::kFloat ? 1e-6 : 4.5e-3;
}

constexpr at::ScalarType kCpuTypes[] = {at::kFloat, at::kBFloat16};
const std::vector<std::vector<std::int64_t>> kNormShapes = {{3, 7}, {2, 5, 32}, {200, 100}, {1, 1, 4}, {70, 129}};

at::Tensor norm_formula(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + eps) * weight;
}

TEST(FusedNorm, EqualsTheFormulaInEveryGradient) {
  at::manual_seed(1);
  for (const auto type : kCpuTypes) {
    for (const auto& shape : kNormShapes) {
      SCOPED_TRACE(::testing::Message() << type << " " << at::IntArrayRef(shape));
      const at::Tensor x = leaf(shape, type), weight = leaf({shape.back()}, at::kFloat);
      const at::Tensor x_wide = in_double(x), weight_wide = in_double(weight);
      const at::Tensor got = rms_norm(x, weight, 1e-5), want = norm_formula(x_wide, weight_wide, 1e-5);
      ASSERT_EQ(got.scalar_type(), type);
      const at::Tensor d = at::randn(shape).to(type);
      got.backward(d);
      want.backward(d.to(at::kDouble));
      EXPECT_THAT(difference(got, want), Le(most_of(type)));
      EXPECT_THAT(difference(x.grad(), x_wide.grad()), Le(4 * most_of(type)));
      EXPECT_THAT(difference(weight.grad(), weight_wide.grad()), Le(4 * most_of(at::kFloat)));
    }
  }
}

/// `fused` and `plain` give a stream and its norm; the loss takes both, as a block does.
void expect_streams_equal(const std::function<Normed(const at::Tensor&, const at::Tensor&, const at::Tensor&)>& fused,
                          const std::function<Normed(const at::Tensor&, const at::Tensor&, const at::Tensor&)>& plain,
                          bool adds) {
  for (const auto type : kCpuTypes) {
    for (const auto& shape : kNormShapes) {
      SCOPED_TRACE(::testing::Message() << type << " " << at::IntArrayRef(shape));
      const at::Tensor x = leaf(shape, type), residual = leaf(shape, type), weight = leaf({shape.back()}, at::kFloat);
      const at::Tensor xs = in_double(x), residuals = in_double(residual), weights = in_double(weight);
      const Normed got = fused(x, residual, weight), want = plain(xs, residuals, weights);
      EXPECT_THAT(difference(got.sum, want.sum), Le(most_of(type)));
      EXPECT_THAT(difference(got.norm, want.norm), Le(2 * most_of(type)));
      const at::Tensor of_sum = at::randn(shape).to(type), of_norm = at::randn(shape).to(type);
      torch::autograd::backward({got.sum, got.norm}, {of_sum, of_norm});
      torch::autograd::backward({want.sum, want.norm}, {of_sum.to(at::kDouble), of_norm.to(at::kDouble)});
      EXPECT_THAT(difference(x.grad(), xs.grad()), Le(4 * most_of(type)));
      EXPECT_THAT(difference(weight.grad(), weights.grad()), Le(8 * most_of(type)));
      if (adds) {
        EXPECT_TRUE(at::equal(residual.grad(), x.grad()));
      }
    }
  }
}

TEST(FusedNorm, AddsTheGradientOfTheStreamBesideIt) {
  at::manual_seed(2);
  expect_streams_equal([](const auto& x, const auto&, const auto& w) { return rms_norm_beside(x, w, 1e-6); },
                       [](const auto& x, const auto&, const auto& w) {
                         return Normed{x, norm_formula(x, w, 1e-6)};
                       },
                       /*adds=*/false);
}

TEST(FusedNorm, OfASumAddsTheResidualFirst) {
  at::manual_seed(3);
  expect_streams_equal([](const auto& x, const auto& r, const auto& w) { return rms_norm_of_sum(x, r, w, 1e-6); },
                       [](const auto& x, const auto& r, const auto& w) {
                         return Normed{x + r, norm_formula(x + r, w, 1e-6)};
                       },
                       /*adds=*/true);
}

TEST(FusedNorm, OfFrozenPartsAndUnusedResultsGivesNoGradient) {
  const at::Tensor x = leaf({4, 6}, at::kFloat), weight = at::ones({6});
  rms_norm(x, weight, 1e-5).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  const at::Tensor fixed = at::randn({4, 6}), trained = leaf({6}, at::kFloat);
  rms_norm(fixed, trained, 1e-5).sum().backward();
  EXPECT_TRUE(at::allclose(trained.grad(), norm_formula(fixed, at::ones({6}), 1e-5).sum(0), 1e-5, 1e-6));
  const at::Tensor stream = leaf({4, 6}, at::kFloat);
  rms_norm_beside(stream, trained, 1e-5).sum.sum().backward();
  EXPECT_TRUE(at::equal(stream.grad(), at::ones({4, 6})));
  EXPECT_FALSE(rms_norm(fixed, weight, 1e-5).requires_grad());
}

/// d(sum of squares of the first gradients), by the inputs.
std::vector<at::Tensor> second_derivatives(const std::vector<at::Tensor>& inputs, const at::Tensor& result) {
  const auto first = torch::autograd::grad({result.pow(2).sum()}, inputs, {}, true, /*create_graph=*/true);
  at::Tensor sum = at::zeros({}, result.options());
  for (const at::Tensor& gradient : first) sum = sum + gradient.pow(2).sum();
  return torch::autograd::grad({sum}, inputs);
}

TEST(FusedOps, HaveSecondDerivatives) {
  at::manual_seed(4);
  const RopeTable table = rope_table(0, 3, {.dim = 4}, at::kFloat, at::kCPU);
  const RopeTable wide{table.cos.to(at::kDouble), table.sin.to(at::kDouble)};
  const at::Tensor x = leaf({2, 3, 16}, at::kFloat), weight = leaf({16}, at::kFloat);
  const auto all = [](const at::Tensor& given, const at::Tensor& w, const RopeTable& rope) {
    const Normed normed = rms_norm_beside(given, w, 1e-5);
    const SplitHeads parts = split_rotated(normed.norm + normed.sum, rope, 2, 1);
    const at::Tensor joined = at::cat({parts.q, parts.k, parts.v}, 2).flatten(2);
    return swiglu(joined) * swiglu(joined.narrow(-1, 0, 8), joined.narrow(-1, 8, 8));
  };
  const std::vector<at::Tensor> leaves{x, weight}, wides{in_double(x), in_double(weight)};
  const auto got = second_derivatives(leaves, all(x, weight, table)),
             want = second_derivatives(wides, all(wides[0], wides[1], wide));
  EXPECT_THAT(difference(got[0], want[0]), Le(1e-4));
  EXPECT_THAT(difference(got[1], want[1]), Le(1e-4));
}

TEST(FusedRope, EqualsTheOperationsForBothKindsOfTables) {
  at::manual_seed(5);
  for (const auto type : kCpuTypes) {
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{2, 7, 3, 64}, {1, 5, 1, 6}, {3, 4, 2, 40}}) {
      for (const bool by_rows : {false, true}) {
        SCOPED_TRACE(::testing::Message() << type << " " << at::IntArrayRef(shape) << " " << by_rows);
        const at::Tensor positions = at::randint(90, {shape[0], shape[1]}, at::kLong);
        const RopeTable table = by_rows ? rope_table(positions, {.dim = shape[3]}, type)
                                        : rope_table(3, shape[1], {.dim = shape[3]}, type, at::kCPU);
        const RopeTable wide{table.cos.to(at::kDouble), table.sin.to(at::kDouble)};
        // Heads before positions in memory, so rows are not dense.
        const at::Tensor base = leaf({shape[0], shape[2], shape[1], shape[3]}, type), base_wide = in_double(base);
        const at::Tensor got = apply_rope(base.transpose(1, 2), table),
                         want = apply_rope(base_wide.transpose(1, 2), wide);
        ASSERT_EQ(got.scalar_type(), type);
        const at::Tensor d = at::randn(shape).to(type);
        got.backward(d);
        want.backward(d.to(at::kDouble));
        EXPECT_THAT(difference(got, want), Le(most_of(type)));
        EXPECT_THAT(difference(base.grad(), base_wide.grad()), Le(most_of(type)));
      }
    }
  }
}

TEST(FusedRope, SplitsTheRowsOfOneProduct) {
  at::manual_seed(6);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const RopeTable table = rope_table(0, 5, {.dim = 6}, type, at::kCPU);
    const at::Tensor qkv = leaf({2, 5, 8 * 6}, type), alone = qkv.detach().clone().requires_grad_();
    const SplitHeads got = split_rotated(qkv, table, 4, 2);
    const auto heads = alone.view({2, 5, 8, 6});
    const SplitHeads want{apply_rope(heads.narrow(2, 0, 4), table), apply_rope(heads.narrow(2, 4, 2), table),
                          heads.narrow(2, 6, 2)};
    EXPECT_TRUE(at::equal(got.q, want.q) && at::equal(got.k, want.k) && at::equal(got.v, want.v)) << type;
    const auto loss = [](const SplitHeads& parts) {
      return (parts.q * 2).sum() + (parts.k.select(1, 1) * 3).sum() + (parts.v * parts.v).sum();
    };
    loss(got).backward();
    loss(want).backward();
    EXPECT_TRUE(at::allclose(qkv.grad(), alone.grad(), 1e-2, 1e-6)) << type;
  }
  EXPECT_THROW(split_rotated(at::randn({2, 5, 40}), rope_table(0, 5, {.dim = 6}, at::kFloat, at::kCPU), 4, 2),
               c10::Error);
}

TEST(FusedSwiglu, EqualsTheOperationsAloneAndSideBySide) {
  at::manual_seed(7);
  for (const auto type : kCpuTypes) {
    for (const std::int64_t count : {1, 7, 64, 1003}) {
      SCOPED_TRACE(::testing::Message() << type << " " << count);
      const at::Tensor both = (at::randn({3, 2 * count}) * 4).to(type).requires_grad_(), wide = in_double(both);
      const at::Tensor gate = both.detach().narrow(-1, 0, count).requires_grad_(),
                       up = both.detach().narrow(-1, count, count).requires_grad_();
      const at::Tensor got = swiglu(both), apart = swiglu(gate, up), want = swiglu(wide);
      EXPECT_TRUE(at::equal(got, apart));
      EXPECT_THAT(difference(got, want), Le(most_of(type)));
      const at::Tensor d = at::randn({3, count}).to(type);
      got.backward(d);
      apart.backward(d);
      want.backward(d.to(at::kDouble));
      EXPECT_TRUE(at::equal(both.grad(), at::cat({gate.grad(), up.grad()}, -1)));
      EXPECT_THAT(difference(both.grad(), wide.grad()), Le(2 * most_of(type)));
    }
  }
}

// silu(x) of x from -86 to 87 has the relative error of exp(), one division and two roundings.
TEST(FusedSwiglu, ItsExponentialIsNearTheLastBit) {
  const at::Tensor x = at::linspace(-86, 87, 1'000'003), ones = at::ones_like(x);
  const at::Tensor want = x.to(at::kDouble) * at::sigmoid(x.to(at::kDouble));
  const at::Tensor error = (swiglu(x, ones).to(at::kDouble) / want - 1).abs().masked_fill(want == 0, 0);
  EXPECT_THAT(error.max().item<double>(), Lt(4e-7));
}

TEST(FusedSwiglu, HugeGatesStayFinite) {
  const at::Tensor gate = at::tensor({-1e4F, 1e4F, -200.0F, 0.0F}).requires_grad_();
  const at::Tensor y = swiglu(gate, at::ones_like(gate));
  y.sum().backward();
  EXPECT_TRUE(at::isfinite(y).all().item<bool>());
  EXPECT_TRUE(at::allclose(gate.grad(), at::tensor({0.0F, 1.0F, 0.0F, 0.5F})));
  EXPECT_EQ(y[1].item<float>(), 1e4F);
  EXPECT_TRUE(swiglu(at::full({5}, NAN), at::ones({5})).isnan().all().item<bool>());
}

std::int64_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident;
}

TEST(FusedOps, ComputeNothingInADryRun) {
  const fsdp::DryRunGuard dry;
  const std::int64_t before = resident_pages();
  const at::Tensor x = at::empty({1 << 14, 1 << 12}).requires_grad_(), weight = at::empty({1 << 12});
  const RopeTable table{at::empty({1 << 14, 64}), at::empty({1 << 14, 64})};
  const Normed normed = rms_norm_beside(x, weight, 1e-5);
  const SplitHeads parts = split_rotated(normed.norm.unsqueeze(0), table, 32, 16);
  const at::Tensor out = swiglu(at::cat({parts.q, parts.k, parts.v}, 2).flatten(2)).sum();
  torch::autograd::backward({out + normed.sum.sum()}, {});
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_LT(resident_pages() - before, 10'000) << "of 65,536 pages in one tensor";
}

/// Three weights [5 + 4 + 3, 6] in one storage, as a sharding engine gathers them.
class SideBySide : public ::testing::Test {
 protected:
  SideBySide() {
    at::manual_seed(8);
    const at::Tensor memory = at::randn({2 + 12 * 6});
    std::int64_t begin = 2;
    for (const std::int64_t rows : {5, 4, 3}) {
      weights_.push_back(memory.narrow(0, begin, rows * 6).view({rows, 6}).variable_data().requires_grad_());
      alone_.push_back(weights_.back().detach().clone().requires_grad_());
      begin += rows * 6;
    }
  }
  static at::Tensor loss(const at::Tensor& y) { return (y * y * y).sum(); }
  at::Tensor expected(const at::Tensor& x) const { return at::linear(x, at::cat(alone_)); }

  std::vector<at::Tensor> weights_, alone_;
};

TEST_F(SideBySide, LayersAreOneProductWithTheGradientsOfThree) {
  const at::Tensor x = leaf({2, 4, 6}, at::kFloat), same = x.detach().clone().requires_grad_();
  const at::Tensor got = joint_linear(x, weights_);
  ASSERT_TRUE(got.defined());
  EXPECT_TRUE(at::allclose(got, expected(same), 1e-5, 1e-6));
  loss(got).backward();
  loss(expected(same)).backward();
  EXPECT_TRUE(at::allclose(x.grad(), same.grad(), 1e-4, 1e-4));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(weights_[i].grad(), alone_[i].grad(), 1e-4, 1e-4)) << i;
}

TEST_F(SideBySide, GradientsThatLieSoAreAddedByOneProduct) {
  const at::Tensor x = at::randn({2, 4, 6}), memory = at::zeros({12, 6});
  std::vector<at::Tensor> laid;
  std::int64_t begin = 0;
  for (auto& weight : weights_) {
    laid.push_back(memory.narrow(0, begin, weight.size(0)).variable_data());
    begin += weight.size(0);
    weight.mutable_grad() = laid.back();
  }
  for (int pass = 0; pass < 2; ++pass) {
    loss(joint_linear(x, weights_)).backward();
    loss(expected(x)).backward();
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(weights_[i].grad().is_same(laid[i]));
    EXPECT_EQ(laid[i]._version(), 2u) << "two additions";
    EXPECT_TRUE(at::allclose(laid[i], alone_[i].grad(), 1e-4, 1e-4)) << i;
  }
}

TEST_F(SideBySide, FrozenPartsHooksAndSecondDerivativesAreAutograds) {
  const at::Tensor x = at::randn({2, 4, 6});
  weights_[1].requires_grad_(false);
  weights_[2].register_hook([](const at::Tensor& gradient) { return gradient * 2; });
  loss(joint_linear(x, weights_)).backward();
  loss(expected(x)).backward();
  EXPECT_TRUE(at::allclose(weights_[0].grad(), alone_[0].grad(), 1e-4, 1e-4));
  EXPECT_FALSE(weights_[1].grad().defined());
  EXPECT_TRUE(at::allclose(weights_[2].grad(), alone_[2].grad() * 2, 1e-4, 1e-4));
  const std::vector<at::Tensor> two{weights_[0].detach().requires_grad_(), weights_[1].detach().requires_grad_()};
  const std::vector<at::Tensor> clones{two[0].detach().clone().requires_grad_(),
                                       two[1].detach().clone().requires_grad_()};
  const auto got = second_derivatives(two, joint_linear(x, two)),
             want = second_derivatives(clones, at::linear(x, at::cat(clones)));
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(got[i], want[i], 1e-3, 1e-2)) << i;
}

TEST_F(SideBySide, OthersAreRefused) {
  const at::Tensor x = at::randn({2, 6});
  EXPECT_FALSE(joint_linear(x, alone_).defined()) << "memory of their own";
  EXPECT_FALSE(joint_linear(x, {weights_[1], weights_[0]}).defined()) << "in another order";
  EXPECT_FALSE(joint_linear(x, {weights_[0], weights_[2]}).defined()) << "with a gap";
  EXPECT_THROW(joint_linear(x, {weights_[0]}), c10::Error);
}

// Large enough for oneDNN, where the processor takes it.
TEST(Products, OfLargeMatricesEqualFp64WhereverTheyAreWritten) {
  at::manual_seed(9);
  const at::Tensor x = leaf({2, 100, 130}, at::kFloat), weight = leaf({96, 130}, at::kFloat);
  const at::Tensor x_wide = in_double(x), weight_wide = in_double(weight);
  const at::Tensor laid = at::empty({96, 130});
  for (int pass = 0; pass < 3; ++pass) {
    if (pass == 1) weight.mutable_grad() = laid.copy_(weight.grad());
    const at::Tensor got = worker::linear(x, weight), want = at::linear(x_wide, weight_wide);
    EXPECT_THAT(difference(got, want), Le(1e-6));
    const at::Tensor d = at::randn({2, 100, 96});
    got.backward(d);
    want.backward(d.to(at::kDouble));
    EXPECT_THAT(difference(x.grad(), x_wide.grad()), Le(1e-6));
    EXPECT_THAT(difference(weight.grad(), weight_wide.grad()), Le(1e-6));
  }
  EXPECT_TRUE(weight.grad().is_same(laid));
  EXPECT_EQ(laid._version(), 3u) << "a copy and two additions";
}

}  // namespace
}  // namespace worker
