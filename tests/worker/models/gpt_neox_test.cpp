// Goal: GPT-NeoX has Hugging Face's names and shapes, and its config.json is read and written as transformers means it.
// What it computes is compared with transformers by families_peers_test.cpp.
#include "worker/models/gpt_neox/gpt_neox_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/worker/small_llama.h"
#include "worker/models/config_json.h"
#include "worker/models/family.h"

namespace worker {
namespace {

using fsdp::Json;
using ::testing::HasSubstr;
using testing::parameters_of;
using testing::small_ids;

spec::GptNeoX small_gpt_neox() {
  auto c = spec::standard<spec::GptNeoX>(spec::gpt_neox());
  c.vocab_size = 40;
  c.hidden_size = 16;
  c.intermediate_size = 24;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 2;
  c.max_position_embeddings = 32;
  return c;
}

std::shared_ptr<GptNeoXForCausalLm> drawn_gpt_neox(const spec::GptNeoX& config) {
  spec::Values values;
  values.set("model.initializer_range", 0.2);
  auto model = std::make_shared<GptNeoXForCausalLm>(config);
  fsdp::initialize(*model, 1, [&](const std::string& name, const at::Tensor& into, at::Generator& random) {
    gpt_neox_family().draw(values, name, into, random);
  });
  return model;
}

TEST(GptNeoX, CarriesHuggingFacesNamesAndShapes) {
  const auto p = parameters_of(*drawn_gpt_neox(small_gpt_neox()));
  EXPECT_EQ(p.size(), 2u * 12 + 4);
  EXPECT_EQ(p.at("gpt_neox.embed_in.weight").sizes(), (at::IntArrayRef{40, 16}));
  EXPECT_EQ(p.at("gpt_neox.layers.1.attention.query_key_value.weight").sizes(), (at::IntArrayRef{48, 16}));
  EXPECT_EQ(p.at("gpt_neox.layers.1.attention.query_key_value.bias").sizes(), (at::IntArrayRef{48}));
  EXPECT_EQ(p.at("gpt_neox.layers.0.attention.dense.weight").sizes(), (at::IntArrayRef{16, 16}));
  EXPECT_EQ(p.at("gpt_neox.layers.0.mlp.dense_h_to_4h.weight").sizes(), (at::IntArrayRef{24, 16}));
  EXPECT_EQ(p.at("gpt_neox.layers.0.mlp.dense_4h_to_h.bias").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("gpt_neox.layers.0.input_layernorm.bias").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("gpt_neox.layers.0.post_attention_layernorm.weight").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("gpt_neox.final_layer_norm.weight").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("embed_out.weight").sizes(), (at::IntArrayRef{40, 16}));
  EXPECT_EQ(p.at("gpt_neox.final_layer_norm.weight").min().item<double>(), 1);
  EXPECT_EQ(p.at("gpt_neox.layers.0.mlp.dense_4h_to_h.bias").abs().max().item<double>(), 0);
  auto lean = small_gpt_neox();
  lean.tie_word_embeddings = true;
  lean.attention_bias = false;
  EXPECT_EQ(parameters_of(*drawn_gpt_neox(lean)).size(), 2u * 10 + 3);
}

TEST(GptNeoX, DropoutIsOfTrainingAlone) {
  const at::NoGradGuard no_grad;
  auto config = small_gpt_neox();
  config.hidden_dropout = 0.5;
  const auto with = drawn_gpt_neox(config), without = drawn_gpt_neox(small_gpt_neox());
  const at::Tensor x = small_ids(2, 8), plain = without->forward(x);
  EXPECT_FALSE(at::allclose(with->forward(x), plain, 1e-2, 1e-3));
  with->eval();
  EXPECT_TRUE(at::equal(with->forward(x), plain));
}

TEST(GptNeoX, SizesThatDoNotFitAreErrors) {
  auto heads = small_gpt_neox();
  heads.num_attention_heads = 3;
  auto odd = small_gpt_neox();
  odd.rotary_pct = 0.4;  // 3 of 8
  for (const auto& [config, says] : {std::pair{heads, "multiple of num_attention_heads"},
                                     {odd, "an even number of rotated elements, not 3 of the 8"}}) {
    try {
      GptNeoXForCausalLm{config};
      ADD_FAILURE() << says;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
  EXPECT_THROW(drawn_gpt_neox(small_gpt_neox())->forward(small_ids(1, 33)), c10::Error);
}

TEST(GptNeoXConfig, ReadsBothTransformers) {
  const char* const kOld =
      R"({"hidden_size": 512, "rotary_pct": 0.5, "rotary_emb_base": 500000, "hidden_act": "gelu_new"})";
  const char* const kNew = R"({"hidden_size": 512, "hidden_act": "gelu_new",
      "rope_parameters": {"rope_type": "default", "rope_theta": 500000, "partial_rotary_factor": 0.5}})";
  for (const char* text : {kOld, kNew}) {
    const auto values = gpt_neox_family().read(Json::parse(text));
    EXPECT_EQ(values.real("model.rotary_pct"), 0.5) << text;
    EXPECT_EQ(values.real("model.rotary_emb_base"), 500000) << text;
    EXPECT_EQ(values.text("model.hidden_act"), "gelu_new");
    EXPECT_EQ(values.whole("model.num_hidden_layers"), 44) << "transformers' default";
    EXPECT_TRUE(values.flag("model.use_parallel_residual"));
    Json config = Json::parse(text);
    gpt_neox_family().write(values, "GPTNeoXForCausalLM", config);
    EXPECT_EQ(config.at("rotary_pct").as_double(), 0.5) << "as transformers 4 reads it";
  }
}

TEST(GptNeoXConfig, RefusesScaledRopeAndUnknownActivations) {
  for (const auto& [text, says] : {std::pair{R"({"rope_scaling": {"type": "linear", "factor": 2}})", "type \"linear\""},
                                   {R"({"hidden_act": "gelu_fast"})", "hidden_act = \"gelu_fast\": want"}}) {
    try {
      gpt_neox_family().read(Json::parse(text));
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

TEST(GptNeoXFiles, MayHoldMasksAndFrequencies) {
  const auto values = gpt_neox_family().read(Json(Json::Object{}));
  const auto& names = gpt_neox_family().names;
  EXPECT_TRUE(names.may_ignore("gpt_neox.layers.0.attention.bias", values));
  EXPECT_TRUE(names.may_ignore("gpt_neox.layers.0.attention.masked_bias", values));
  EXPECT_TRUE(names.may_ignore("gpt_neox.layers.0.attention.rotary_emb.inv_freq", values));
  EXPECT_FALSE(names.may_ignore("gpt_neox.layers.0.attention.query_key_value.bias", values));
  EXPECT_FALSE(names.may_ignore("embed_out.weight", values)) << "not tied";
}

TEST(GptNeoXFamily, CountsTheLayersAboveAParameter) {
  spec::Values values;
  values.set("model.num_hidden_layers", std::int64_t{6});
  const auto above = [&](const char* name) { return gpt_neox_family().layers_above(values, name); };
  EXPECT_EQ(above("embed_out.weight"), 0);
  EXPECT_EQ(above("gpt_neox.layers.5.mlp.dense_h_to_4h.weight"), 1);
  EXPECT_EQ(above("gpt_neox.embed_in.weight"), 7);
}

}  // namespace
}  // namespace worker
