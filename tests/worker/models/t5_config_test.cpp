// Goal: T5's config.json is read and written as transformers means it, and files may name tensors as old ones do.
#include <gmock/gmock.h>

#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "spec/tables/t5_keys.h"
#include "worker/models/config_json.h"
#include "worker/models/family.h"
#include "worker/models/t5/t5_model.h"

namespace worker {
namespace {

using fsdp::Json;
using ::testing::HasSubstr;

TEST(T5Config, TakesTransformersDefaultsForWhatIsAbsentOrNull) {
  const auto values =
      t5_family().read(Json::parse(R"({"num_layers": 8, "num_decoder_layers": null, "pad_token_id": 3})"));
  EXPECT_EQ(values.whole("model.d_model"), 512);
  EXPECT_EQ(values.whole("model.num_decoder_layers"), 8);
  EXPECT_EQ(values.whole("model.decoder_start_token_id"), 3);
  EXPECT_EQ(values.real("model.layer_norm_epsilon"), 1e-6);
  EXPECT_EQ(values.text("model.feed_forward_proj"), "relu");
  EXPECT_TRUE(values.flag("model.tie_word_embeddings"));
}

TEST(T5Config, ReadsFlanT5AndWritesItBack) {
  const char* const kText = R"({"architectures": ["T5ForConditionalGeneration"], "d_ff": 1024, "d_kv": 64,
      "d_model": 512, "decoder_start_token_id": 0, "dense_act_fn": "gelu_new", "dropout_rate": 0.1, "eos_token_id": 1,
      "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0, "is_encoder_decoder": true, "is_gated_act": true,
      "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512, "num_decoder_layers": 8, "num_heads": 6,
      "num_layers": 8, "output_past": true, "pad_token_id": 0, "relative_attention_max_distance": 128,
      "relative_attention_num_buckets": 32, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 32128})";
  const Json config = Json::parse(kText);
  auto values = t5_family().read(config);
  const auto model = spec::bind<spec::T5>(spec::t5(), values);
  EXPECT_EQ(model.activation(), "gelu_new");
  EXPECT_TRUE(model.is_gated());
  EXPECT_FALSE(model.tie_word_embeddings);
  EXPECT_EQ(model.inner_size(), 384);
  Json same = config;
  t5_family().write(values, "T5ForConditionalGeneration", same);
  EXPECT_EQ(same.dump(), config.dump());
  values.set("model.feed_forward_proj", std::string("relu"));
  t5_family().write(values, "T5ForConditionalGeneration", same);
  EXPECT_EQ(same.at("dense_act_fn").as_string(), "relu") << "transformers reads this one";
  EXPECT_FALSE(same.at("is_gated_act").as_bool());
}

TEST(T5Config, RefusesWhatItLacksByName) {
  for (const auto& [text, says] :
       {std::pair{R"({"model_type": "mt5"})", "has model_type = \"mt5\""},
        {R"({"architectures": ["T5EncoderModel"]})", "want one of: T5ForConditionalGeneration"},
        {R"({"is_encoder_decoder": false})", "has is_encoder_decoder = false"},
        {R"({"tie_encoder_decoder": true})", "has tie_encoder_decoder = true"},
        {R"({"feed_forward_proj": "gated-swish"})", "feed_forward_proj = \"gated-swish\": want"},
        {R"({"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu"})", "has dense_act_fn = \"gelu\""},
        {R"({"relative_attention_num_buckets": 2})", "relative_attention_num_buckets = 2: want"}}) {
    try {
      t5_family().read(Json::parse(text));
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

/// The rows of a T5 whose files are these.
spec::T5 t5_of(const char* config, const char* generation = "null", std::set<std::string, std::less<>> tensors = {}) {
  const ModelFiles files{.config = Json::parse(config),
                         .generation = Json::parse(generation),
                         .tensors = std::make_shared<const std::set<std::string, std::less<>>>(std::move(tensors))};
  return spec::bind<spec::T5>(spec::t5(), read_model(t5_family(), files));
}

TEST(T5Config, AHeadIsOfItsOwnAsEitherTransformersSaysIt) {
  const char* const kOfFive = R"({"tie_word_embeddings": true, "scale_decoder_outputs": false})";
  const auto own_of_four = t5_of(R"({"tie_word_embeddings": false})", "null", {"lm_head.weight"});
  const auto own_of_five = t5_of(kOfFive, "null", {"lm_head.weight"});
  for (const auto& model : {own_of_four, own_of_five}) {
    EXPECT_FALSE(model.tie_word_embeddings);
    EXPECT_FALSE(model.scales_head());
  }
  const auto shared_unscaled = t5_of(kOfFive, "null", {"shared.weight"});
  EXPECT_TRUE(shared_unscaled.tie_word_embeddings);
  EXPECT_FALSE(shared_unscaled.scales_head());
  for (const char* usual : {"{}", R"({"tie_word_embeddings": true, "scale_decoder_outputs": true})"}) {
    EXPECT_TRUE(t5_of(usual).tie_word_embeddings);
    EXPECT_TRUE(t5_of(usual).scales_head());
  }
  EXPECT_THROW(t5_of(R"({"tie_word_embeddings": false, "scale_decoder_outputs": true})"), std::invalid_argument);
}

TEST(T5Config, WhatIsWrittenIsReadAlikeWithoutTheFiles) {
  for (const char* text : {R"({"tie_word_embeddings": true, "scale_decoder_outputs": false})",
                           R"({"tie_word_embeddings": false})", "{}"}) {
    for (const bool has_head : {true, false}) {
      ModelFiles files{.config = Json::parse(text)};
      std::set<std::string, std::less<>> tensors;
      if (has_head) tensors.insert("lm_head.weight");
      files.tensors = std::make_shared<const std::set<std::string, std::less<>>>(tensors);
      const auto values = read_model(t5_family(), files);
      Json written = files.config;
      t5_family().write(values, kT5Architecture, written);
      const auto again = read_model(t5_family(), {.config = written});
      const auto want = spec::bind<spec::T5>(spec::t5(), values), got = spec::bind<spec::T5>(spec::t5(), again);
      EXPECT_EQ(got.tie_word_embeddings, want.tie_word_embeddings) << text << has_head;
      EXPECT_EQ(got.scales_head(), want.scales_head()) << text << has_head;
    }
  }
}

TEST(T5Config, TheFirstTokenOfADecoderIsThatOfGenerationConfig) {
  EXPECT_EQ(t5_of(R"({"pad_token_id": 3})", R"({"decoder_start_token_id": 5})").decoder_start_token_id, 5);
  EXPECT_EQ(t5_of(R"({"pad_token_id": 3})", R"({"eos_token_id": 1})").decoder_start_token_id, 3);
  EXPECT_EQ(t5_of(R"({"decoder_start_token_id": 4})", R"({"decoder_start_token_id": 4})").decoder_start_token_id, 4);
  try {
    t5_of(R"({"decoder_start_token_id": 0})", R"({"decoder_start_token_id": 5})");
    ADD_FAILURE();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("generation_config.json has decoder_start_token_id = 5, and config.json has 0"));
  }
}

TEST(T5Files, MayHoldTheTableUnderEachOfItsNames) {
  auto values = t5_family().read(Json(Json::Object{}));
  const auto& names = t5_family().names;
  EXPECT_EQ(names.parameter_of("shared.weight"), "shared.weight");
  EXPECT_EQ(names.parameter_of("encoder.embed_tokens.weight"), "shared.weight");
  EXPECT_EQ(names.parameter_of("decoder.embed_tokens.weight"), "shared.weight");
  EXPECT_EQ(names.parameter_of("lm_head.weight"), "lm_head.weight");
  EXPECT_TRUE(names.may_ignore("decoder.embed_tokens.weight", values)) << "beside another one";
  EXPECT_TRUE(names.may_ignore("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", values));
  EXPECT_FALSE(names.may_ignore("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", values));
  EXPECT_TRUE(names.may_ignore("lm_head.weight", values));
  values.set("model.tie_word_embeddings", false);
  EXPECT_FALSE(names.may_ignore("lm_head.weight", values));
}

TEST(T5Family, CountsTheLayersAboveAParameter) {
  spec::Values values;
  values.set("model.num_layers", std::int64_t{4});
  values.set("model.num_decoder_layers", std::int64_t{3});
  const auto above = [&](const char* name) { return t5_family().layers_above(values, name); };
  EXPECT_EQ(above("lm_head.weight"), 0);
  EXPECT_EQ(above("decoder.final_layer_norm.weight"), 0);
  EXPECT_EQ(above("decoder.block.2.layer.0.layer_norm.weight"), 1);
  EXPECT_EQ(above("decoder.block.0.layer.0.layer_norm.weight"), 3);
  EXPECT_EQ(above("encoder.final_layer_norm.weight"), 3);
  EXPECT_EQ(above("encoder.block.3.layer.0.layer_norm.weight"), 4);
  EXPECT_EQ(above("encoder.block.0.layer.0.layer_norm.weight"), 7);
  EXPECT_EQ(above("shared.weight"), 8);
}

TEST(T5Table, DerivesTheDecoderFromTheEncoder) {
  const auto model = spec::standard<spec::T5>(spec::t5());
  EXPECT_EQ(model.num_layers, 3);
  EXPECT_EQ(model.num_decoder_layers, 3);
  EXPECT_EQ(model.decoder_start_token_id, 0);
  EXPECT_THAT(spec::conflicts_of(model), ::testing::IsEmpty());
}

}  // namespace
}  // namespace worker
