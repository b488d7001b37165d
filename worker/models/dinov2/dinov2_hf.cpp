#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/dinov2/heads.h"
#include "worker/models/family.h"

namespace worker {
namespace {

using fsdp::Json;
using spec::Values;

constexpr std::string_view kDinov2 = "dinov2", kWithRegisters = "dinov2_with_registers";
constexpr auto kOtherDinov2Types = std::to_array<std::string_view>({kWithRegisters});
constexpr auto kDinov2Architectures =
    std::to_array<std::string_view>({"Dinov2Model", "Dinov2ForImageClassification", "Dinov2Backbone"});
constexpr auto kRegisterArchitectures = std::to_array<std::string_view>(
    {"Dinov2WithRegistersModel", "Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersBackbone"});

/// Sides, which config.json may give as [height, width].
constexpr auto kDinov2Sides = std::to_array<std::string_view>({"image_size", "patch_size"});

/// The values of a real row that transformers 5 takes as a whole number alone.
constexpr std::string_view kDinov2WholeRatio = "model.mlp_ratio";

/// Members of config.json beside the rows; see [Note: members of configuration files].
constexpr auto kDinov2Only = std::to_array<OnlyValue>({{"is_encoder_decoder", "false"}});
constexpr auto kDinov2NoEffect = std::to_array<std::string_view>(
    {"is_decoder", "cross_attention_hidden_size", "tie_word_embeddings", "out_features", "out_indices", "_out_features",
     "_out_indices", "stage_names", "apply_layernorm", "reshape_hidden_states"});

bool has_registers(const Json& config) {
  const Json* type = given(config, "model_type");
  return type != nullptr && *type == Json(kWithRegisters);
}

/// The one number of a side; null where config.json lacks it.
Json dinov2_side(const Json& config, std::string_view name) {
  const Json* side = given(config, name);
  if (side == nullptr || !side->is_array()) return side == nullptr ? Json() : *side;
  const auto& sides = side->as_array();
  if (sides.size() == 2 && sides[0] == sides[1]) return sides[0];
  throw std::invalid_argument(std::string(kModelConfigFile) + " has " + std::string(name) + " = " + side->dump() +
                              ", and this model has squares only; choose another model");
}

Values read_dinov2(const Json& config) {
  const bool registers = has_registers(config);
  if (registers) {
    want_family(config, kWithRegisters, kRegisterArchitectures);
  } else {
    want_family(config, kDinov2, kDinov2Architectures);
  }
  check_config(config, spec::dinov2(), {kDinov2Sides, kDinov2Only, kDinov2NoEffect});
  Json plain = config;
  for (const auto side : kDinov2Sides) plain[side] = dinov2_side(config, side);
  Values values = values_of_config(spec::dinov2(), plain);
  set_absent(values, {{"model.hidden_size", 768},
                      {"model.num_hidden_layers", 12},
                      {"model.num_attention_heads", 12},
                      {"model.mlp_ratio", 4.0},
                      {"model.hidden_act", "gelu"},
                      {"model.hidden_dropout_prob", 0.0},
                      {"model.attention_probs_dropout_prob", 0.0},
                      {"model.initializer_range", 0.02},
                      {"model.layer_norm_eps", 1e-6},
                      {"model.image_size", 224}});
  set_absent(values, "model.patch_size", std::int64_t{registers ? 16 : 14});
  set_absent(values, {{"model.num_channels", 3},
                      {"model.qkv_bias", true},
                      {"model.layerscale_value", 1.0},
                      {"model.drop_path_rate", 0.0},
                      {"model.use_swiglu_ffn", false}});
  // Only one of the two types of model knows each of these members.
  set_absent(values, "model.use_mask_token", true);
  if (registers) {
    values.set("model.use_mask_token", true);
    set_absent(values, "model.num_register_tokens", std::int64_t{4});
    if (values.whole("model.num_register_tokens") == 0) {
      throw std::invalid_argument(std::string(kModelConfigFile) + " is of a " + std::string(kWithRegisters) +
                                  " with num_register_tokens = 0; want at least 1");
    }
  } else {
    values.set("model.num_register_tokens", std::int64_t{0});
  }
  return values;
}

void write_dinov2(const Values& values, std::string_view architecture, Json& config) {
  const bool registers = values.whole("model.num_register_tokens") > 0;
  config["architectures"] = Json::Array{Json(registers ? kRegisterArchitectures.front() : architecture)};
  config["model_type"] = registers ? kWithRegisters : kDinov2;
  write_members(config, values, spec::dinov2(),
                {"model.image_size", "model.patch_size", "model.num_register_tokens", "model.use_mask_token"});
  if (const auto* ratio = values.find(kDinov2WholeRatio)) write_whole(config, "mlp_ratio", std::get<double>(*ratio));
  for (const auto side : kDinov2Sides) {
    const auto* value = values.find("model." + std::string(side));
    if (value != nullptr && !(dinov2_side(config, side) == Json(std::get<std::int64_t>(*value))))
      write_member(config, side, *value);
  }
  const char* row = registers ? "num_register_tokens" : "use_mask_token";
  if (const auto* value = values.find(std::string("model.") + row)) write_member(config, row, *value);
}

/// transformers' models with a head hold the model under its type's name. Family::names.base serves one of the types.
std::string dinov2_parameter_of(std::string_view in_file) {
  const std::string prefix = std::string(kWithRegisters) + ".";
  return std::string(in_file.starts_with(prefix) ? in_file.substr(prefix.size()) : in_file);
}

bool may_ignore_in_dinov2(std::string_view in_file, const Values& model) {
  return in_file.starts_with("classifier.") ||
         (in_file.ends_with("embeddings.mask_token") && model.has("model.use_mask_token") &&
          !model.flag("model.use_mask_token"));
}

void draw_dinov2(const Values& values, const std::string& name, const at::Tensor& into, at::Generator& random) {
  if (name.ends_with(".lambda1")) {
    into.fill_(values.real("model.layerscale_value"));
  } else if (name.ends_with("norm1.weight") || name.ends_with("norm2.weight")) {
    into.fill_(1.0);
  } else if (name.ends_with("mask_token")) {
    into.fill_(0.0);
  } else if (name.ends_with("register_tokens")) {
    // transformers fills them with zeros, and then they would stay equal to each other for ever. DINOv2 draws them so.
    into.normal_(0.0, 1e-6, random);
  } else {
    draw_normal(name, into, values.real("model.initializer_range"), random);
  }
}

/// Counts layers as DINOv2's groups of parameters do: registers, the last norm and all heads have the full rate.
int dinov2_layers_above(const Values& values, const std::string& parameter) {
  static constexpr std::string_view kLayers = "encoder.layer.", kEmbeddings = "embeddings.";
  const auto layers = static_cast<int>(values.whole("model.num_hidden_layers"));
  if (const auto at = parameter.find(kLayers); at != std::string::npos)
    return layers - std::stoi(parameter.substr(at + kLayers.size()));
  return parameter.find(kEmbeddings) == std::string::npos || parameter.ends_with("register_tokens") ? 0 : layers + 1;
}

}  // namespace

Json dinov2_preprocessor(const Values& values) {
  const std::int64_t side = values.whole("model.image_size");
  Json out;
  out["image_processor_type"] = "BitImageProcessor";
  out["do_convert_rgb"] = true;
  out["do_resize"] = true;
  out["resample"] = 3;  // bicubic
  out["size"]["shortest_edge"] = side * 256 / 224;
  out["do_center_crop"] = true;
  out["crop_size"]["height"] = side;
  out["crop_size"]["width"] = side;
  out["do_rescale"] = true;
  out["rescale_factor"] = 1.0 / 255;
  out["do_normalize"] = true;
  out["image_mean"] = Json::Array(spec::kImageNetMean.begin(), spec::kImageNetMean.end());
  out["image_std"] = Json::Array(spec::kImageNetDeviation.begin(), spec::kImageNetDeviation.end());
  return out;
}

const Family& dinov2_family() {
  static const Family row{.name = kDinov2,
                          .other_types = kOtherDinov2Types,
                          .table = spec::dinov2(),
                          .architectures = kDinov2Architectures,
                          .read = read_dinov2,
                          .write = write_dinov2,
                          .names = {.base = "dinov2.",
                                    .parameter_of = dinov2_parameter_of,
                                    .may_ignore = may_ignore_in_dinov2,
                                    .may_lack = is_of_dino_head},
                          .draw = draw_dinov2,
                          .layers_above = dinov2_layers_above};
  return row;
}

}  // namespace worker
