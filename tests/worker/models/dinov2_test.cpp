// Goal: DINOv2 has Hugging Face's names and shapes, its config.json is read and written as transformers means it, and
// what training adds to it (masks, stochastic depth, recomputation, sharding) does what it says. What the model
// computes is compared with transformers by dinov2_peers_test.cpp.
#include "worker/models/dinov2/dinov2_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "tests/worker/small_dinov2.h"
#include "tests/worker/small_llama.h"
#include "worker/models/config_json.h"
#include "worker/models/family.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

using fsdp::Json;
using testing::drawn_dinov2;
using ::testing::HasSubstr;
using testing::parameters_of;
using testing::small_dinov2;
using testing::small_images;

std::string error_of_dinov2(const spec::Dinov2& config) {
  try {
    Dinov2Model{config};
    return "no error";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Dinov2, CarriesHuggingFacesNamesAndShapes) {
  auto config = small_dinov2();
  config.layerscale_value = 1e-5;
  const auto p = parameters_of(*drawn_dinov2(config));
  EXPECT_EQ(p.size(), 2u * 18 + 7);
  EXPECT_EQ(p.at("embeddings.cls_token").sizes(), (at::IntArrayRef{1, 1, 16}));
  EXPECT_EQ(p.at("embeddings.mask_token").sizes(), (at::IntArrayRef{1, 16}));
  EXPECT_EQ(p.at("embeddings.position_embeddings").sizes(), (at::IntArrayRef{1, 1 + 16, 16}));
  EXPECT_EQ(p.at("embeddings.patch_embeddings.projection.weight").sizes(), (at::IntArrayRef{16, 3, 4, 4}));
  EXPECT_EQ(p.at("embeddings.patch_embeddings.projection.bias").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("encoder.layer.1.attention.attention.query.weight").sizes(), (at::IntArrayRef{16, 16}));
  EXPECT_EQ(p.at("encoder.layer.1.attention.attention.value.bias").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("encoder.layer.0.attention.output.dense.bias").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("encoder.layer.0.mlp.fc1.weight").sizes(), (at::IntArrayRef{64, 16}));
  EXPECT_EQ(p.at("encoder.layer.0.mlp.fc2.weight").sizes(), (at::IntArrayRef{16, 64}));
  EXPECT_EQ(p.at("encoder.layer.0.norm1.weight").min().item<double>(), 1);
  EXPECT_EQ(p.at("layernorm.weight").min().item<double>(), 1);
  EXPECT_EQ(p.at("layernorm.bias").abs().max().item<double>(), 0);
  EXPECT_EQ(p.at("embeddings.mask_token").abs().max().item<double>(), 0);
  EXPECT_FLOAT_EQ(p.at("encoder.layer.1.layer_scale2.lambda1").max().item<float>(), 1e-5f);
}

TEST(Dinov2, HasOtherPartsWhereTheConfigurationSaysSo) {
  auto config = small_dinov2();
  config.qkv_bias = config.use_mask_token = false;
  config.use_swiglu_ffn = true;
  const auto lean = parameters_of(*drawn_dinov2(config));
  EXPECT_EQ(lean.size(), 2u * 15 + 6);
  EXPECT_EQ(lean.count("embeddings.mask_token"), 0u);
  // 16 x 4 x 2/3 = 42, up to 48; twice for the two halves.
  EXPECT_EQ(lean.at("encoder.layer.0.mlp.weights_in.weight").sizes(), (at::IntArrayRef{96, 16}));
  EXPECT_EQ(lean.at("encoder.layer.0.mlp.weights_out.weight").sizes(), (at::IntArrayRef{16, 48}));
  auto with = small_dinov2();
  with.num_register_tokens = 3;
  const at::Tensor registers = parameters_of(*drawn_dinov2(with)).at("embeddings.register_tokens");
  EXPECT_EQ(registers.sizes(), (at::IntArrayRef{1, 3, 16}));
  EXPECT_FALSE(at::equal(registers.select(1, 0), registers.select(1, 1))) << "equal ones would stay equal";
  EXPECT_LT(registers.abs().max().item<double>(), 1e-4);
}

TEST(Dinov2, TokensAreOfTheClassTheRegistersAndThePatches) {
  const at::NoGradGuard no_grad;
  auto config = small_dinov2();
  config.num_register_tokens = 3;
  const auto model = drawn_dinov2(config);
  const at::Tensor images = small_images(2, 16, 16);
  const Dinov2Output out = model->forward(images);
  EXPECT_EQ(out.tokens.sizes(), (at::IntArrayRef{2, 1 + 3 + 16, 16}));
  EXPECT_EQ(out.cls().sizes(), (at::IntArrayRef{2, 16}));
  EXPECT_TRUE(at::equal(out.patches(), out.tokens.slice(1, 4)));
  EXPECT_EQ(model->forward(small_images(2, 8, 12)).patches().sizes(), (at::IntArrayRef{2, 2 * 3, 16}));
}

TEST(Dinov2, PixelsThatFillNoPatchAreLeftOut) {
  const at::NoGradGuard no_grad;
  const auto model = drawn_dinov2(small_dinov2());
  const at::Tensor images = small_images(1, 14, 14);
  EXPECT_TRUE(at::equal(model->forward(images).tokens, model->forward(images.slice(2, 0, 12).slice(3, 0, 12)).tokens));
}

TEST(Dinov2, AMaskedPatchIsNotSeen) {
  const at::NoGradGuard no_grad;
  const auto model = drawn_dinov2(small_dinov2());
  const at::Tensor images = small_images(2, 16, 16), others = images.clone();
  others[1].slice(1, 4, 8).slice(2, 8, 12).fill_(3);  // the patch of row 1 and column 2
  at::Tensor masks = at::zeros({2, 16}, at::kBool);
  EXPECT_TRUE(at::equal(model->forward(images, masks).tokens, model->forward(images).tokens));
  masks[1][6] = true;
  const at::Tensor one = model->forward(images, masks).tokens, other = model->forward(others, masks).tokens;
  EXPECT_TRUE(at::equal(one, other));
  EXPECT_FALSE(at::allclose(one[1], model->forward(images).tokens[1], 1e-3, 1e-4));
  EXPECT_TRUE(at::allclose(one[0], model->forward(images).tokens[0], 1e-6, 1e-7)) << "it has no mask";
}

TEST(Dinov2, StochasticDepthLeavesOutPartsOfSomeImages) {
  const at::NoGradGuard no_grad;
  auto config = small_dinov2();
  config.drop_path_rate = 0.5;
  const auto sizes = config;
  Dinov2Layer layer(sizes);
  for (auto& item : layer.named_parameters()) item.value().normal_(0.0, 0.3);
  parameters_of(layer).at("layer_scale2.lambda1").zero_();
  const at::Tensor x = at::randn({64, 5, 16});
  layer.eval();
  const at::Tensor part = layer.forward(x) - x;
  layer.train();
  at::manual_seed(3);
  const at::Tensor dropped = layer.forward(x) - x;
  int kept = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    const bool is_kept = dropped[i].abs().max().item<double>() > 0;
    kept += is_kept;
    EXPECT_TRUE(at::allclose(dropped[i], is_kept ? 2 * part[i] : at::zeros({5, 16}), 1e-4, 1e-5)) << i;
  }
  EXPECT_GT(kept, 16);
  EXPECT_LT(kept, 48);
}

TEST(Dinov2, RecomputedBlocksGiveTheSameGradients) {
  auto config = small_dinov2();
  config.drop_path_rate = config.hidden_dropout_prob = 0.3;
  const auto plain = drawn_dinov2(config), recomputed = drawn_dinov2(config);
  for (const auto& block : recomputed->blocks()) block->wrapper = recomputing(*block);
  for (const auto& model : {plain, recomputed}) {
    at::manual_seed(4);
    model->forward(small_images(3, 16, 16)).tokens.square().sum().backward();
  }
  const auto got = parameters_of(*recomputed);
  for (const auto& [name, value] : parameters_of(*plain)) {
    if (!value.grad().defined()) continue;  // no mask token without masks
    EXPECT_TRUE(at::equal(got.at(name).grad(), value.grad())) << name;
  }
}

TEST(Dinov2, ComputesIn16Bits) {
  const at::NoGradGuard no_grad;
  auto config = small_dinov2();
  config.num_register_tokens = 1;
  const auto wide = drawn_dinov2(config), narrow = drawn_dinov2(config);
  narrow->to(at::kBFloat16);
  const at::Tensor images = small_images(2, 12, 20);
  const at::Tensor got = narrow->forward(images).tokens;
  EXPECT_EQ(got.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(got.to(at::kFloat), wide->forward(images).tokens, 0.05, 0.1));
}

TEST(Dinov2, WhatDoesNotFitIsRefusedByName) {
  auto heads = small_dinov2(), small = heads, masks = heads, flat = heads, none = heads;
  heads.num_attention_heads = 3;
  small.image_size = 3;
  masks.num_register_tokens = 2;
  masks.use_mask_token = false;
  flat.mlp_ratio = 0.01;
  none.num_hidden_layers = 0;
  EXPECT_THAT(error_of_dinov2(heads), HasSubstr("model.hidden_size: want a multiple of num_attention_heads = 3"));
  EXPECT_THAT(error_of_dinov2(small), HasSubstr("model.image_size: want at least patch_size = 4"));
  EXPECT_THAT(error_of_dinov2(masks), HasSubstr("model.use_mask_token: want true with num_register_tokens = 2"));
  EXPECT_THAT(error_of_dinov2(flat), HasSubstr("model.mlp_ratio"));
  auto between = small_dinov2();
  between.hidden_size = 192;
  between.mlp_ratio = 2.67;
  EXPECT_THAT(error_of_dinov2(between), HasSubstr("model.mlp_ratio: want hidden_size x mlp_ratio to be a whole number, "
                                                  "not 192 x 2.67 = 512.64; try 2 or 3"));
  EXPECT_THAT(error_of_dinov2(none), HasSubstr("model.num_hidden_layers = 0: want"));
  auto without = small_dinov2();
  without.use_mask_token = false;
  EXPECT_THROW(drawn_dinov2(without)->forward(small_images(1, 16, 16), at::zeros({1, 16}, at::kBool)), c10::Error);
  const auto model = drawn_dinov2(small_dinov2());
  EXPECT_THROW(model->forward(small_images(1, 16, 16), at::zeros({1, 15}, at::kBool)), c10::Error);
  EXPECT_THROW(model->forward(small_images(1, 16, 3)), c10::Error);
  EXPECT_THROW(model->forward(small_images(1, 16, 16).slice(1, 0, 2)), c10::Error);
}

TEST(Dinov2Config, ReadsBothTypesOfTransformers) {
  const auto plain = dinov2_family().read(Json::parse(R"({"model_type": "dinov2", "hidden_size": 384})"));
  EXPECT_EQ(plain.whole("model.hidden_size"), 384);
  EXPECT_EQ(plain.whole("model.patch_size"), 14);
  EXPECT_EQ(plain.real("model.layerscale_value"), 1.0) << "transformers' default";
  EXPECT_EQ(plain.whole("model.num_register_tokens"), 0);
  const auto with = dinov2_family().read(Json::parse(
      R"({"model_type": "dinov2_with_registers", "architectures": ["Dinov2WithRegistersForImageClassification"],
          "image_size": [518, 518], "mlp_ratio": 4, "use_mask_token": false})"));
  EXPECT_EQ(with.whole("model.num_register_tokens"), 4);
  EXPECT_EQ(with.whole("model.patch_size"), 16);
  EXPECT_EQ(with.whole("model.image_size"), 518);
  EXPECT_TRUE(with.flag("model.use_mask_token")) << "that type knows no such member";
}

TEST(Dinov2Config, RefusesWhatItLacksByName) {
  const auto error_of = [](const char* text) -> std::string {
    try {
      dinov2_family().read(Json::parse(text));
      return "no error";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  EXPECT_THAT(error_of(R"({"image_size": [224, 448]})"),
              HasSubstr("image_size = [224,448], and this model has squares"));
  EXPECT_THAT(error_of(R"({"model_type": "vit"})"), HasSubstr("model_type = \"vit\""));
  EXPECT_THAT(error_of(R"({"architectures": ["Dinov2WithRegistersModel"]})"), HasSubstr("want one of: Dinov2Model"));
  EXPECT_THAT(error_of(R"({"model_type": "dinov2_with_registers", "num_register_tokens": 0})"),
              HasSubstr("num_register_tokens = 0"));
  EXPECT_THAT(error_of(R"({"hidden_act": "selu"})"), HasSubstr("hidden_act = \"selu\": want"));
}

TEST(Dinov2Config, WritesAWholeRatioAsTransformers5WantsIt) {
  for (const auto& [text, want] :
       {std::pair{"{}", "4"}, {R"({"mlp_ratio": 4.0})", "4"}, {R"({"mlp_ratio": 2.5})", "2.5"}}) {
    Json config = Json::parse(text);
    dinov2_family().write(dinov2_family().read(config), "Dinov2Model", config);
    EXPECT_EQ(config.at("mlp_ratio").dump(), want) << text;
  }
}

TEST(Dinov2Config, WritesTheTypeThatHasRegisters) {
  Json config = Json::parse(R"({"model_type": "dinov2_with_registers", "image_size": [28, 28], "out_features": ["stem"],
                                "num_register_tokens": 2, "architectures": ["Dinov2WithRegistersBackbone"]})");
  auto values = dinov2_family().read(config);
  dinov2_family().write(values, "Dinov2Model", config);
  EXPECT_EQ(config.at("architectures").dump(), R"(["Dinov2WithRegistersModel"])");
  EXPECT_EQ(config.at("model_type").as_string(), "dinov2_with_registers");
  EXPECT_EQ(config.at("image_size").dump(), "[28,28]") << "equal already";
  EXPECT_EQ(config.at("out_features").dump(), R"(["stem"])");
  values.set("model.image_size", std::int64_t{56});
  dinov2_family().write(values, "Dinov2Model", config);
  EXPECT_EQ(config.at("image_size").dump(), "56");
  const Json images = dinov2_preprocessor(values);
  EXPECT_EQ(images.at("size").at("shortest_edge").as_int(), 64);
  EXPECT_EQ(images.at("crop_size").at("height").as_int(), 56);
}

TEST(Dinov2Files, MayBeOfModelsWithAClassifier) {
  auto values = dinov2_family().read(Json(Json::Object{}));
  const FileNames& names = dinov2_family().names;
  const auto is_norm = [](const std::string& name) { return name == "layernorm.weight"; };
  for (const char* in_file :
       {"layernorm.weight", "dinov2.layernorm.weight", "dinov2_with_registers.layernorm.weight"}) {
    EXPECT_EQ(parameter_in(names, in_file, is_norm), "layernorm.weight") << in_file;
  }
  EXPECT_TRUE(names.may_ignore("classifier.weight", values));
  EXPECT_FALSE(names.may_ignore("embeddings.mask_token", values));
  values.set("model.use_mask_token", false);
  EXPECT_TRUE(names.may_ignore("dinov2.embeddings.mask_token", values));
  EXPECT_TRUE(names.may_lack("dino_head.mlp.0.weight"));
  EXPECT_FALSE(names.may_lack("backbone.layernorm.weight"));
}

TEST(Dinov2Family, CountsTheLayersAboveAParameter) {
  spec::Values values;
  values.set("model.num_hidden_layers", std::int64_t{6});
  const auto above = [&](const char* name) { return dinov2_family().layers_above(values, name); };
  EXPECT_EQ(above("layernorm.weight"), 0);
  EXPECT_EQ(above("encoder.layer.5.mlp.fc1.weight"), 1);
  EXPECT_EQ(above("backbone.encoder.layer.0.mlp.fc1.weight"), 6);
  EXPECT_EQ(above("embeddings.patch_embeddings.projection.weight"), 7);
  EXPECT_EQ(above("backbone.embeddings.cls_token"), 7);
  EXPECT_EQ(above("backbone.embeddings.register_tokens"), 0) << "as DINOv2's groups have it";
  EXPECT_EQ(above("dino_head.mlp.0.weight"), 0);
}

}  // namespace
}  // namespace worker
