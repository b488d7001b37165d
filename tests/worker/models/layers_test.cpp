// Goal: each layer of the models computes what its header says. Method: small tensors against the formulas.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <stdexcept>

#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

namespace worker {
namespace {

using ::testing::HasSubstr;

TEST(RmsNorm, NormalisesAndScalesInFp32ThenCasts) {
  RmsNorm norm(4, 1e-6);
  const at::NoGradGuard no_grad;
  norm.weight.copy_(at::arange(1, 5));
  const at::Tensor x = at::randn({3, 4});
  const at::Tensor expected = x / (x.pow(2).mean(-1, true) + 1e-6).sqrt() * at::arange(1, 5);
  EXPECT_TRUE(at::allclose(norm.forward(x), expected, 1e-5, 1e-6));
  norm.weight.set_data(norm.weight.to(at::kBFloat16));
  const at::Tensor big = (x * 1e3).to(at::kBFloat16);
  const at::Tensor wide = big.to(at::kFloat);
  const at::Tensor cast = (wide * at::rsqrt(wide.pow(2).mean(-1, true) + 1e-6) * norm.weight).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(norm.forward(big), cast));
}

TEST(LayerNorm, RemovesMeanAndScale) {
  LayerNorm norm(4, 1e-12);
  const at::NoGradGuard no_grad;
  norm.weight.copy_(at::arange(1, 5));
  norm.bias.fill_(0.5);
  const at::Tensor x = at::randn({3, 4});
  const at::Tensor centred = x - x.mean(-1, true);
  const at::Tensor expected = centred / (centred.pow(2).mean(-1, true) + 1e-12).sqrt() * at::arange(1, 5) + 0.5;
  EXPECT_TRUE(at::allclose(norm.forward(x), expected, 1e-5, 1e-6));
}

TEST(Linear, AnAdapterAddsItsProductAndChangesNothingWhileBIsZero) {
  Linear layer(6, 4, /*has_bias=*/true);
  const at::NoGradGuard no_grad;
  for (auto& parameter : layer.parameters()) parameter.copy_(at::randn(parameter.sizes()));
  const at::Tensor x = at::randn({2, 3, 6}), plain = layer.forward(x);
  EXPECT_TRUE(at::allclose(plain, x.matmul(layer.weight.t()) + layer.bias, 1e-5, 1e-6));
  layer.add_adapter(2, /*scale=*/0.5, /*dropout=*/0);
  auto added = layer.named_parameters();
  ASSERT_EQ(added.size(), 4u);
  at::Tensor &a = added["lora_A.weight"], &b = added["lora_B.weight"];
  EXPECT_EQ(a.sizes(), (at::IntArrayRef{2, 6}));
  EXPECT_EQ(b.sizes(), (at::IntArrayRef{4, 2}));
  a.copy_(at::randn({2, 6}));
  b.zero_();
  EXPECT_TRUE(at::equal(layer.forward(x), plain));
  b.copy_(at::randn({4, 2}));
  EXPECT_TRUE(at::allclose(layer.forward(x), plain + 0.5 * x.matmul(a.t()).matmul(b.t()), 1e-5, 1e-5));
  const Factors factors = layer.factors(x);
  EXPECT_TRUE(at::allclose(factors.x.matmul(factors.weight.t()) + layer.bias, layer.forward(x), 1e-5, 1e-5));
  EXPECT_THROW(layer.add_adapter(2, 1, 0), c10::Error) << "a second one";
}

TEST(Activation, HasTheNamesAndFormulasOfHuggingFace) {
  const at::Tensor x = at::arange(-3, 4).to(at::kFloat);
  const at::Tensor cubic = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x.pow(3));
  EXPECT_TRUE(
      at::allclose(activate(activation_of("gelu"), x), 0.5 * x * (1 + (x / std::numbers::sqrt2).erf()), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(activate(activation_of("gelu_new"), x), 0.5 * x * (1 + cubic.tanh()), 1e-5, 1e-6));
  EXPECT_EQ(activation_of("gelu_pytorch_tanh"), activation_of("gelu_new"));
  EXPECT_TRUE(at::equal(activate(activation_of("relu"), x), x.clamp_min(0)));
  EXPECT_TRUE(at::allclose(activate(activation_of("silu"), x), x * x.sigmoid(), 1e-5, 1e-6));
  try {
    activation_of("tanhshrink");
    ADD_FAILURE();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"tanhshrink\" does not exist here; want gelu, "));
  }
}

TEST(Dropout, KeepsTheMeanAndDoesNothingOutsideOfTraining) {
  const at::Tensor x = at::ones({10'000});
  EXPECT_TRUE(drop_out(x, 0.3, /*training=*/false).is_same(x));
  EXPECT_TRUE(drop_out(x, 0, /*training=*/true).is_same(x));
  at::manual_seed(1);
  const at::Tensor y = drop_out(x, 0.3, /*training=*/true);
  EXPECT_NEAR(y.eq(0).sum().item<double>() / 10'000, 0.3, 0.02);
  EXPECT_NEAR(y.max().item<double>(), 1 / 0.7, 1e-6);
}

/// The formula, for a float mask.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                           double scale) {
  return at::softmax(q.matmul(k.transpose(-2, -1)) * scale + bias, -1).matmul(v);
}

at::Tensor as_bias(const at::Tensor& sees) {
  return at::zeros(sees.sizes()).masked_fill_(sees.logical_not(), -INFINITY);
}

TEST(Attention, EqualsTheFormulaWithEveryKindOfMask) {
  at::manual_seed(2);
  const at::Tensor q = at::randn({2, 4, 5, 8}), k = at::randn({2, 4, 5, 8}), v = at::randn({2, 4, 5, 8});
  const at::Tensor lower = at::ones({5, 5}, at::kBool).tril(), bias = at::randn({1, 4, 5, 5});
  const double usual = 1 / std::sqrt(8.0);
  const auto got = [&](const Mask& mask, std::optional<double> scale = {}) {
    return attention(q, k, v, mask, scale, /*dropout=*/0.5, /*training=*/false);
  };
  EXPECT_TRUE(at::allclose(got({}), plain_attention(q, k, v, at::zeros({1}), usual), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(got(causal_mask()), plain_attention(q, k, v, as_bias(lower), usual), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(got({.bias = bias}, 1.0), plain_attention(q, k, v, bias, 1.0), 1e-5, 1e-6));
  EXPECT_THROW(got({.bias = bias, .causal = true}), c10::Error);
}

TEST(Attention, AMaskMayNeedAGradient) {
  at::manual_seed(2);
  const at::Tensor q = at::randn({2, 4, 5, 8}), k = at::randn({2, 2, 5, 8}), v = at::randn({2, 2, 5, 8});
  const at::Tensor bias = at::randn({1, 4, 5, 5}), trained = bias.clone().requires_grad_();
  const at::Tensor wide_k = k.repeat_interleave(2, 1), wide_v = v.repeat_interleave(2, 1);
  const at::Tensor got = attention(q, k, v, {.bias = trained}, 1.0, 0, true);
  EXPECT_TRUE(at::allclose(got, plain_attention(q, wide_k, wide_v, bias, 1.0), 1e-5, 1e-6));
  got.sum().backward();
  const at::Tensor want = bias.clone().requires_grad_();
  plain_attention(q, wide_k, wide_v, want, 1.0).sum().backward();
  EXPECT_TRUE(at::allclose(trained.grad(), want.grad(), 1e-4, 1e-6));
}

TEST(Masks, PaddedKeysAreNotSeen) {
  at::manual_seed(4);
  const at::Tensor counts = at::tensor({1, 1, 0, 0, 0, 0}, at::kLong).view({2, 3});
  const at::Tensor x = at::randn({2, 2, 3, 8});
  const at::Tensor got = attention(x, x, x, padding_mask(counts), {}, 0, false);
  const at::Tensor alone = x.narrow(0, 0, 1).narrow(2, 0, 2);
  EXPECT_TRUE(
      at::allclose(got.narrow(0, 0, 1).narrow(2, 0, 2), attention(alone, alone, alone, {}, {}, 0, false), 1e-5, 1e-6));
  EXPECT_TRUE(got.isfinite().all().item<bool>()) << "a row without any key that counts";
}

TEST(Masks, NewTokensSeeTheCachedOnes) {
  EXPECT_TRUE(continued_mask(0, 4, at::kCPU).causal);
  const Mask one = continued_mask(7, 1, at::kCPU);
  EXPECT_FALSE(one.causal || one.bias.defined());
  const at::Tensor want = at::tensor({1, 1, 1, 0, 1, 1, 1, 1}, at::kInt).view({2, 4}).to(at::kBool);
  EXPECT_TRUE(at::equal(continued_mask(2, 2, at::kCPU).bias, want));
}

TEST(KeyValuesCache, GrowsUpToItsCapacity) {
  Cache cache = empty_cache(2, {1, 2, 5, 4}, at::kFloat);
  ASSERT_EQ(cache.size(), 2u);
  const at::Tensor k = at::randn({1, 2, 3, 4}), v = at::randn({1, 2, 3, 4}), more = at::randn({1, 2, 2, 4});
  cache[0].append(k, v);
  cache[0].append(more, more);
  EXPECT_TRUE(at::equal(cache[0].all_keys(), at::cat({k, more}, 2)));
  EXPECT_TRUE(at::equal(cache[0].all_values(), at::cat({v, more}, 2)));
  EXPECT_EQ(cache[1].length, 0);
  try {
    cache[0].append(more, more);
    ADD_FAILURE();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the cache holds 5 of 5 positions, and 2 more do not fit"));
  }
}

}  // namespace
}  // namespace worker
