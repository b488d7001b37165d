#include "models/llama.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <stdexcept>
#include <string>

#include "fsdp/initialize.h"
#include "models/head_loss.h"

namespace worker {
namespace {

using ::testing::HasSubstr;

schema::Llama small(std::int64_t kv_heads = 2, bool tied = false) {
  auto c = schema::standard<schema::Llama>(schema::llama());
  c.vocab_size = 40;
  c.hidden_size = 16;
  c.intermediate_size = 24;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 4;
  c.num_key_value_heads = kv_heads;
  c.max_position_embeddings = 32;
  c.tie_word_embeddings = tied;
  return c;
}

std::shared_ptr<LlamaForCausalLm> model_of(const schema::Llama& config, std::uint64_t seed = 1) {
  auto model = std::make_shared<LlamaForCausalLm>(config);
  fsdp::initialize(*model, seed, [&](const std::string& name, const at::Tensor& values, at::Generator& random) {
    model->draw(name, values, random);
  });
  return model;
}

std::map<std::string, at::Tensor> parameters(const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> out;
  for (const auto& item : model.named_parameters()) out[item.key()] = item.value();
  return out;
}

at::Tensor ids(std::int64_t batch, std::int64_t positions) {
  at::manual_seed(5);
  return at::randint(0, 40, {batch, positions}, at::kLong);
}

TEST(Llama, CarriesHuggingFacesNamesAndShapes) {
  const auto p = parameters(*model_of(small()));
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
  const auto model = model_of(small());
  const at::Tensor a = ids(2, 10), b = a.clone();
  b.select(1, 6).fill_(7);
  b.select(1, 9).fill_(8);
  const at::Tensor out_a = model->forward(a), out_b = model->forward(b);
  EXPECT_TRUE(at::allclose(out_a.narrow(1, 0, 6), out_b.narrow(1, 0, 6), 1e-6, 1e-7));
  EXPECT_FALSE(at::allclose(out_a.select(1, 6), out_b.select(1, 6), 1e-3, 1e-4));
}

TEST(Llama, GroupedHeadsEqualRepeatedOnes) {
  const at::NoGradGuard no_grad;
  const auto grouped = model_of(small(2)), full = model_of(small(4), 2);
  const auto from = parameters(*grouped);
  for (auto& [name, to] : parameters(*full)) {
    at::Tensor value = from.at(name);
    if (name.find("k_proj") != std::string::npos || name.find("v_proj") != std::string::npos) {
      value = value.view({2, 4, 16}).repeat_interleave(2, 0).reshape({16, 16});
    }
    to.copy_(value);
  }
  const at::Tensor x = ids(2, 8);
  EXPECT_TRUE(at::allclose(grouped->forward(x), full->forward(x), 1e-5, 1e-6));
}

TEST(Llama, ATiedHeadIsTheEmbedding) {
  const auto tied = model_of(small(2, true)), untied = model_of(small(2, false));
  EXPECT_EQ(parameters(*tied).count("lm_head.weight"), 0u);
  {
    const at::NoGradGuard no_grad;
    for (auto& [name, to] : parameters(*untied)) {
      to.copy_(parameters(*tied).at(name == "lm_head.weight" ? "model.embed_tokens.weight" : name));
    }
  }
  const at::Tensor x = ids(1, 6), y = ids(1, 6);
  EXPECT_TRUE(at::equal(tied->forward(x), untied->forward(x)));
  tied->loss(x, y).backward();
  untied->loss(x, y).backward();
  const auto p = parameters(*untied);
  EXPECT_TRUE(at::allclose(parameters(*tied).at("model.embed_tokens.weight").grad(),
                           p.at("model.embed_tokens.weight").grad() + p.at("lm_head.weight").grad(), 1e-5, 1e-7));
}

TEST(Llama, TheSeedAndTheNameDecideEveryValue) {
  const auto a = parameters(*model_of(small(), 7)), b = parameters(*model_of(small(), 7)),
             c = parameters(*model_of(small(), 8)), other = parameters(*model_of(small(2, true), 7));
  for (const auto& [name, value] : a) EXPECT_TRUE(at::equal(value, b.at(name))) << name;
  EXPECT_FALSE(at::equal(a.at("lm_head.weight"), c.at("lm_head.weight")));
  EXPECT_FALSE(at::equal(a.at("model.layers.0.mlp.up_proj.weight"), a.at("model.layers.1.mlp.up_proj.weight")));
  EXPECT_TRUE(at::equal(a.at("model.layers.1.mlp.up_proj.weight"), other.at("model.layers.1.mlp.up_proj.weight")));
  EXPECT_NEAR(a.at("lm_head.weight").std().item<double>(), 0.02, 0.003);
}

TEST(Llama, StartsOutKnowingNothing) {
  const at::NoGradGuard no_grad;
  const double loss = model_of(small())->loss(ids(4, 16), ids(4, 16)).item<double>();
  EXPECT_NEAR(loss / (4 * 16), std::log(40.0), 0.1);
}

TEST(Llama, WrappersOwnTheCalls) {
  const auto model = model_of(small());
  const at::Tensor x = ids(1, 5), plain = model->forward(x);
  int calls = 0;
  const CallWrapper counting = [&](Tensors inputs, const Forward& forward) {
    ++calls;
    const Tensors first = forward(inputs);
    EXPECT_TRUE(at::equal(first[0], forward(inputs)[0]));  // a recomputation calls forward again
    return first;
  };
  for (const auto& layer : model->layers()) layer->wrapper = nested(counting, call_directly);
  model->wrapper = [&](Tensors inputs, const Forward& forward) { return Tensors{forward(std::move(inputs))[0] * 2}; };
  EXPECT_TRUE(at::equal(model->forward(x), plain * 2));
  EXPECT_EQ(calls, 2);
  for (const auto& layer : model->layers()) layer->attention_wrapper = layer->mlp_wrapper = counting;
  EXPECT_TRUE(at::equal(model->forward(x), plain * 2));
  EXPECT_EQ(calls, 2 + 2 * (1 + 2 * 2)) << "a layer that is computed twice calls its two parts twice";
}

TEST(Llama, TooManyPositionsAndSizesThatDoNotFitAreErrors) {
  EXPECT_THROW(model_of(small())->forward(ids(1, 33)), c10::Error);
  auto heads = small();
  heads.num_attention_heads = 3;
  auto groups = small();
  groups.num_key_value_heads = 3;
  auto odd = small(4);
  odd.hidden_size = 12;
  for (const auto& [config, says] : {std::pair{heads, "multiple of num_attention_heads"},
                                     {groups, "divisor of num_attention_heads"},
                                     {odd, "even width"}}) {
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
  const auto model = model_of(small());
  const at::Tensor x = ids(2, 8), wide = model->forward(x);
  model->to(at::kBFloat16);
  const at::Tensor narrow = model->forward(x);
  EXPECT_EQ(narrow.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(narrow.to(at::kFloat), wide, 0.05, 0.02));
}

TEST(Rope, ScoresDependOnDistanceAlone) {
  const auto table = rope_table(12, 8, 10000.0, at::kFloat, at::kCPU);
  at::manual_seed(3);
  const at::Tensor q = apply_rope(at::randn({1, 1, 1, 8}).expand({1, 12, 1, 8}), table).squeeze();
  const at::Tensor k = apply_rope(at::randn({1, 1, 1, 8}).expand({1, 12, 1, 8}), table).squeeze();
  const at::Tensor scores = q.matmul(k.t());
  for (int shift = 1; shift < 6; ++shift) {
    EXPECT_NEAR(scores[shift + 4][shift].item<double>(), scores[4][0].item<double>(), 1e-4);
  }
  EXPECT_NEAR(q[9].norm().item<double>(), q[0].norm().item<double>(), 1e-5);
}

TEST(Rope, TurnsTheTwoHalvesAgainstEachOther) {
  const auto table = rope_table(3, 4, 100.0, at::kFloat, at::kCPU);
  at::Tensor x = at::zeros({1, 3, 1, 4});
  x.select(-1, 1).fill_(1.0);  // pairs are (0, 2) and (1, 3); the second rotates by position / sqrt(100)
  const at::Tensor y = apply_rope(x, table)[0][2][0];
  EXPECT_NEAR(y[1].item<double>(), std::cos(0.2), 1e-6);
  EXPECT_NEAR(y[3].item<double>(), std::sin(0.2), 1e-6);
  EXPECT_NEAR(y[0].item<double>(), 0, 1e-6);
}

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

}  // namespace
}  // namespace worker
