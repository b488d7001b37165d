#include "spec/tables/dinov2_keys.h"

#include <array>
#include <cmath>

#include "spec/limits.h"
#include "spec/tables/model_rules.h"

namespace spec {
namespace {

constexpr auto kDinov2Keys = std::to_array<Key>({
    {.name = "model.hidden_size",
     .kind = Kind::kWhole,
     .standard = "192",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width of the model; a multiple of num_attention_heads.",
     .assign = into<&Dinov2::hidden_size>},
    {.name = "model.num_hidden_layers",
     .kind = Kind::kWhole,
     .standard = "6",
     .low = 1,
     .high = 10'000,
     .meaning = "Number of transformer blocks.",
     .assign = into<&Dinov2::num_hidden_layers>},
    {.name = "model.num_attention_heads",
     .kind = Kind::kWhole,
     .standard = "3",
     .low = 1,
     .high = kMostSize,
     .meaning = "Number of attention heads.",
     .assign = into<&Dinov2::num_attention_heads>},
    {.name = "model.mlp_ratio",
     .kind = Kind::kReal,
     .standard = "4",
     .low = 0,
     .high = 1024,
     .above_low = true,
     .meaning =
         "Width inside the feed-forward blocks, as a multiple of hidden_size that is a whole number; SwiGLU takes two "
         "thirds of it.",
     .assign = into<&Dinov2::mlp_ratio>},
    {.name = "model.hidden_act",
     .kind = Kind::kChoice,
     .standard = "gelu",
     .choices = "gelu gelu_new gelu_pytorch_tanh relu silu",
     .meaning = "The nonlinear function of the feed-forward blocks; gelu_new and gelu_pytorch_tanh are GELU by tanh.",
     .assign = into<&Dinov2::hidden_act>},
    {.name = "model.hidden_dropout_prob",
     .kind = Kind::kReal,
     .standard = "0",
     .low = 0,
     .high = 0.99,
     .meaning = "Share of the embedding's and the attention's outputs that training sets to zero.",
     .assign = into<&Dinov2::hidden_dropout_prob>},
    {.name = "model.attention_probs_dropout_prob",
     .kind = Kind::kReal,
     .standard = "0",
     .low = 0,
     .high = 0.99,
     .meaning = "Share of the attention's probabilities that training sets to zero.",
     .assign = into<&Dinov2::attention_probs_dropout_prob>},
    {.name = "model.initializer_range",
     .kind = Kind::kReal,
     .standard = "0.02",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "Standard deviation of the initial weights.",
     .assign = into<&Dinov2::initializer_range>},
    {.name = "model.layer_norm_eps",
     .kind = Kind::kReal,
     .standard = "1e-6",
     .low = 0,
     .high = 0.1,
     .above_low = true,
     .meaning = "Keeps the norm from dividing by zero.",
     .assign = into<&Dinov2::layer_norm_eps>},
    {.name = "model.image_size",
     .kind = Kind::kWhole,
     .standard = "64",
     .low = 1,
     .high = 16'384,
     .unit = "pixels",
     .meaning = "Side of the square images that the table of positions is for; other sizes interpolate it.",
     .assign = into<&Dinov2::image_size>},
    {.name = "model.patch_size",
     .kind = Kind::kWhole,
     .standard = "8",
     .low = 1,
     .high = 1024,
     .unit = "pixels",
     .meaning = "Side of the square patches that become tokens.",
     .assign = into<&Dinov2::patch_size>},
    {.name = "model.num_channels",
     .kind = Kind::kWhole,
     .standard = "3",
     .low = 1,
     .high = 1024,
     .meaning = "Channels of an image.",
     .assign = into<&Dinov2::num_channels>},
    {.name = "model.qkv_bias",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether the attention's queries, keys and values have biases.",
     .assign = into<&Dinov2::qkv_bias>},
    {.name = "model.layerscale_value",
     .kind = Kind::kReal,
     .standard = "1e-5",
     .low = 0,
     .high = 1e3,
     .above_low = true,
     .meaning = "First value of the scales that the blocks' parts are multiplied by.",
     .assign = into<&Dinov2::layerscale_value>},
    {.name = "model.drop_path_rate",
     .kind = Kind::kReal,
     .standard = "0",
     .low = 0,
     .high = 0.99,
     .meaning = "Probability that training leaves out a part of a block for an image.",
     .assign = into<&Dinov2::drop_path_rate>},
    {.name = "model.use_swiglu_ffn",
     .kind = Kind::kFlag,
     .standard = "false",
     .meaning = "Whether the feed-forward blocks are SwiGLU.",
     .assign = into<&Dinov2::use_swiglu_ffn>},
    {.name = "model.num_register_tokens",
     .kind = Kind::kWhole,
     .standard = "0",
     .low = 0,
     .high = 1024,
     .meaning = "Tokens without a patch of their own, as in dinov2_with_registers.",
     .assign = into<&Dinov2::num_register_tokens>},
    {.name = "model.use_mask_token",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning =
         "Whether there is a token that stands for masked patches; needed to train, and always there with registers.",
     .assign = into<&Dinov2::use_mask_token>},
    {.name = "model.pretrained",
     .kind = Kind::kPath,
     .meaning = kPretrainedMeaning,
     .assign = into<&Dinov2::pretrained>},
});

/// transformers 4 rounds hidden_size x mlp_ratio down, and transformers 5 takes whole ratios alone. A ratio that is not
/// whole is fine where it means one width.
void want_whole_width(const Dinov2& model, std::vector<Conflict>& conflicts) {
  const double width = static_cast<double>(model.hidden_size) * model.mlp_ratio;
  if (width == std::floor(width)) return;
  const auto text = [](double number) { return print(Key{.name = "number", .kind = Kind::kReal}, number); };
  const double below = std::floor(model.mlp_ratio);
  conflicts.push_back({"model.mlp_ratio",
                       "want hidden_size x mlp_ratio to be a whole number, not " + std::to_string(model.hidden_size) +
                           " x " + text(model.mlp_ratio) + " = " + text(width),
                       "try " + (below > 0 ? text(below) + " or " : std::string()) + text(below + 1),
                       {"model.hidden_size"}});
}

void check_dinov2(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  auto found = conflicts_of(bind<Dinov2>(dinov2(), values));
  conflicts.insert(conflicts.end(), found.begin(), found.end());
}

}  // namespace

const Table& dinov2() {
  static const Table table{"dinov2", kDinov2Keys, nullptr, check_dinov2};
  return table;
}

std::vector<Conflict> conflicts_of(const Dinov2& model) {
  std::vector<Conflict> conflicts;
  const auto hidden = model.hidden_size, heads = model.num_attention_heads;
  if (heads <= 0 || model.patch_size <= 0) return conflicts;
  want_even_heads(hidden, heads, conflicts);
  if (model.grid() < 1) {
    conflicts.push_back({"model.image_size",
                         "want at least patch_size = " + std::to_string(model.patch_size),
                         "an image has one patch or more",
                         {"model.patch_size"}});
  }
  if (model.inner_size() < 1) {
    conflicts.push_back({"model.mlp_ratio",
                         "want feed-forward blocks of at least one element, not of hidden_size x mlp_ratio < 1",
                         "4 is common",
                         {"model.hidden_size"}});
  } else {
    want_whole_width(model, conflicts);
  }
  if (model.num_register_tokens > 0 && !model.use_mask_token) {
    conflicts.push_back({"model.use_mask_token",
                         "want true with num_register_tokens = " + std::to_string(model.num_register_tokens),
                         "dinov2_with_registers always has a mask token",
                         {"model.num_register_tokens"}});
  }
  return conflicts;
}

}  // namespace spec
