#include "worker/models/llama/llama_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "tests/worker/small_llama.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

using ::testing::HasSubstr;

using testing::drawn_llama;
using testing::parameters_of;
using testing::small_ids;
using testing::small_llama;

TEST(Llama, CarriesHuggingFacesNamesAndShapes) {
  const auto p = parameters_of(*drawn_llama(small_llama()));
  EXPECT_EQ(p.size(), 2u * 9 + 3);
  EXPECT_EQ(p.at("model.embed_tokens.weight").sizes(), (at::IntArrayRef{40, 16}));
  EXPECT_EQ(p.at("model.layers.1.self_attn.q_proj.weight").sizes(), (at::IntArrayRef{16, 16}));
  EXPECT_EQ(p.at("model.layers.1.self_attn.k_proj.weight").sizes(), (at::IntArrayRef{8, 16}));
  EXPECT_EQ(p.at("model.layers.0.self_attn.v_proj.weight").sizes(), (at::IntArrayRef{8, 16}));
  EXPECT_EQ(p.at("model.layers.0.self_attn.o_proj.weight").sizes(), (at::IntArrayRef{16, 16}));
  EXPECT_EQ(p.at("model.layers.0.mlp.gate_proj.weight").sizes(), (at::IntArrayRef{24, 16}));
  EXPECT_EQ(p.at("model.layers.0.mlp.up_proj.weight").sizes(), (at::IntArrayRef{24, 16}));
  EXPECT_EQ(p.at("model.layers.0.mlp.down_proj.weight").sizes(), (at::IntArrayRef{16, 24}));
  EXPECT_EQ(p.at("model.layers.0.input_layernorm.weight").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("model.layers.0.post_attention_layernorm.weight").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("model.norm.weight").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("lm_head.weight").sizes(), (at::IntArrayRef{40, 16}));
}

TEST(Llama, APositionSeesOnlyWhatComesBeforeIt) {
  const at::NoGradGuard no_grad;
  const auto model = drawn_llama(small_llama());
  const at::Tensor a = small_ids(2, 10), b = a.clone();
  b.select(1, 6).fill_(7);
  b.select(1, 9).fill_(8);
  const at::Tensor out_a = model->forward(a), out_b = model->forward(b);
  EXPECT_TRUE(at::allclose(out_a.narrow(1, 0, 6), out_b.narrow(1, 0, 6), 1e-6, 1e-7));
  EXPECT_FALSE(at::allclose(out_a.select(1, 6), out_b.select(1, 6), 1e-3, 1e-4));
}

TEST(Llama, GroupedHeadsEqualRepeatedOnes) {
  const at::NoGradGuard no_grad;
  const auto grouped = drawn_llama(small_llama(2)), full = drawn_llama(small_llama(4), 2);
  const auto from = parameters_of(*grouped);
  for (auto& [name, to] : parameters_of(*full)) {
    at::Tensor value = from.at(name);
    if (name.find("k_proj") != std::string::npos || name.find("v_proj") != std::string::npos) {
      value = value.view({2, 4, 16}).repeat_interleave(2, 0).reshape({16, 16});
    }
    to.copy_(value);
  }
  const at::Tensor x = small_ids(2, 8);
  EXPECT_TRUE(at::allclose(grouped->forward(x), full->forward(x), 1e-5, 1e-6));
}

TEST(Llama, ATiedHeadIsTheEmbedding) {
  const auto tied = drawn_llama(small_llama(2, true)), untied = drawn_llama(small_llama(2, false));
  EXPECT_EQ(parameters_of(*tied).count("lm_head.weight"), 0u);
  {
    const at::NoGradGuard no_grad;
    for (auto& [name, to] : parameters_of(*untied)) {
      to.copy_(parameters_of(*tied).at(name == "lm_head.weight" ? "model.embed_tokens.weight" : name));
    }
  }
  const at::Tensor x = small_ids(1, 6), y = small_ids(1, 6);
  EXPECT_TRUE(at::equal(tied->forward(x), untied->forward(x)));
  tied->loss(x, y).backward();
  untied->loss(x, y).backward();
  const auto p = parameters_of(*untied);
  EXPECT_TRUE(at::allclose(parameters_of(*tied).at("model.embed_tokens.weight").grad(),
                           p.at("model.embed_tokens.weight").grad() + p.at("lm_head.weight").grad(), 1e-5, 1e-7));
}

TEST(Llama, HeadsMayBeWiderThanTheirShareOfTheModel) {
  auto config = small_llama();
  config.hidden_size = 15;  // no multiple of the heads
  config.head_dim = 6;
  const auto model = drawn_llama(config);
  const auto p = parameters_of(*model);
  EXPECT_EQ(p.at("model.layers.0.self_attn.q_proj.weight").sizes(), (at::IntArrayRef{24, 15}));
  EXPECT_EQ(p.at("model.layers.0.self_attn.k_proj.weight").sizes(), (at::IntArrayRef{12, 15}));
  EXPECT_EQ(p.at("model.layers.0.self_attn.o_proj.weight").sizes(), (at::IntArrayRef{15, 24}));
  EXPECT_EQ(model->forward(small_ids(2, 5)).sizes(), (at::IntArrayRef{2, 5, 40}));
}

TEST(Llama, BiasesStartAsZerosAndGetGradients) {
  auto config = small_llama();
  config.attention_bias = config.mlp_bias = true;
  const auto with = drawn_llama(config), without = drawn_llama(small_llama());
  const at::Tensor x = small_ids(2, 6);
  EXPECT_TRUE(at::allclose(with->forward(x), without->forward(x), 1e-6, 1e-7));
  with->loss(x, x).backward();
  int biases = 0;
  for (const auto& [name, value] : parameters_of(*with)) {
    if (!name.ends_with(".bias")) continue;
    ++biases;
    EXPECT_TRUE(at::equal(value, at::zeros_like(value))) << name;
    // A bias of the keys moves all scores of a query alike but for the rotation, so its gradient is small.
    EXPECT_GT(value.grad().abs().max().item<double>(), 0) << name;
  }
  EXPECT_EQ(biases, 2 * 7);
}

TEST(Llama, DropoutIsOfTrainingAlone) {
  const at::NoGradGuard no_grad;
  auto config = small_llama();
  config.attention_dropout = 0.5;
  const auto with = drawn_llama(config), without = drawn_llama(small_llama());
  const at::Tensor x = small_ids(2, 8), plain = without->forward(x);
  EXPECT_FALSE(at::allclose(with->forward(x), plain, 1e-3, 1e-6));
  at::manual_seed(9);
  const at::Tensor first = with->forward(x);
  at::manual_seed(9);
  EXPECT_TRUE(at::equal(with->forward(x), first));
  with->eval();
  EXPECT_TRUE(at::equal(with->forward(x), plain));
}

TEST(Llama, DropoutDrawsTheSameNumbersWhereABlockIsRecomputed) {
  auto config = small_llama();
  config.attention_dropout = 0.5;
  const auto plain = drawn_llama(config), recomputed = drawn_llama(config);
  for (const auto& block : recomputed->blocks()) block->wrapper = recomputing(*block);
  const at::Tensor x = small_ids(2, 8);
  for (const auto& model : {plain, recomputed}) {
    at::manual_seed(9);
    model->loss(x, x).backward();
  }
  const auto want = parameters_of(*plain);
  for (const auto& [name, value] : parameters_of(*recomputed)) {
    EXPECT_TRUE(at::equal(value.grad(), want.at(name).grad())) << name;
  }
}

TEST(Llama, TheSeedAndTheNameDecideEveryValue) {
  const auto a = parameters_of(*drawn_llama(small_llama(), 7)), b = parameters_of(*drawn_llama(small_llama(), 7)),
             c = parameters_of(*drawn_llama(small_llama(), 8)),
             other = parameters_of(*drawn_llama(small_llama(2, true), 7));
  for (const auto& [name, value] : a) EXPECT_TRUE(at::equal(value, b.at(name))) << name;
  EXPECT_FALSE(at::equal(a.at("lm_head.weight"), c.at("lm_head.weight")));
  EXPECT_FALSE(at::equal(a.at("model.layers.0.mlp.up_proj.weight"), a.at("model.layers.1.mlp.up_proj.weight")));
  EXPECT_TRUE(at::equal(a.at("model.layers.1.mlp.up_proj.weight"), other.at("model.layers.1.mlp.up_proj.weight")));
  EXPECT_NEAR(a.at("lm_head.weight").std().item<double>(), 0.02, 0.003);
}

TEST(Llama, StartsOutKnowingNothing) {
  const at::NoGradGuard no_grad;
  const double loss = drawn_llama(small_llama())->loss(small_ids(4, 16), small_ids(4, 16)).item<double>();
  EXPECT_NEAR(loss / (4 * 16), std::log(40.0), 0.1);
}

TEST(Llama, WrappersOwnTheCalls) {
  const auto model = drawn_llama(small_llama());
  const at::Tensor x = small_ids(1, 5), plain = model->forward(x);
  int calls = 0;
  const CallWrapper counting = [&](Tensors inputs, const Forward& forward) {
    ++calls;
    const Tensors first = forward(inputs);
    EXPECT_TRUE(at::equal(first[0], forward(inputs)[0]));  // a recomputation calls forward again
    return first;
  };
  for (const auto& layer : model->blocks()) layer->wrapper = nested(counting, call_directly);
  model->wrapper = [&](Tensors inputs, const Forward& forward) { return Tensors{forward(std::move(inputs))[0] * 2}; };
  EXPECT_TRUE(at::equal(model->forward(x), plain * 2));
  EXPECT_EQ(calls, 2);
  for (const auto& layer : model->blocks()) layer->attention_wrapper = layer->mlp_wrapper = counting;
  EXPECT_TRUE(at::equal(model->forward(x), plain * 2));
  EXPECT_EQ(calls, 2 + 2 * (1 + 2 * 2)) << "a layer that is computed twice calls its two parts twice";
}

TEST(Llama, TooManyPositionsAndSizesThatDoNotFitAreErrors) {
  EXPECT_THROW(drawn_llama(small_llama())->forward(small_ids(1, 33)), c10::Error);
  auto heads = small_llama();
  heads.num_attention_heads = 3;
  auto groups = small_llama();
  groups.num_key_value_heads = 3;
  auto odd = small_llama(4);
  odd.hidden_size = 12;
  auto odd_heads = small_llama();
  odd_heads.head_dim = 3;
  auto ramp = small_llama();
  ramp.rope_type = spec::RopeScaling::kLlama3;
  ramp.rope_high_freq_factor = 1;
  for (const auto& [config, says] : {std::pair{heads, "multiple of num_attention_heads"},
                                     {groups, "divisor of num_attention_heads"},
                                     {odd, "even width"},
                                     {odd_heads, "even width"},
                                     {ramp, "less than model.rope_high_freq_factor"}}) {
    try {
      LlamaForCausalLm{config};
      ADD_FAILURE() << says;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

TEST(Llama, ComputesInBf16WhenItsParametersAre) {
  const at::NoGradGuard no_grad;
  const auto model = drawn_llama(small_llama());
  const at::Tensor x = small_ids(2, 8), wide = model->forward(x);
  model->to(at::kBFloat16);
  const at::Tensor narrow = model->forward(x);
  EXPECT_EQ(narrow.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(narrow.to(at::kFloat), wide, 0.05, 0.02));
}

}  // namespace
}  // namespace worker
