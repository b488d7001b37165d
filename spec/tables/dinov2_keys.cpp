#include "spec/tables/dinov2_keys.h"

#include <cmath>

#include "spec/limits.h"
#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr auto kDinov2Keys = std::to_array<Key>({
    row::hidden_size("192", into<&Dinov2::hidden_size>),
    row::num_hidden_layers("6", into<&Dinov2::num_hidden_layers>),
    row::num_attention_heads("3", into<&Dinov2::num_attention_heads>),
    row::real(
        "model.mlp_ratio", "4", above(0, 1024),
        "Width inside the feed-forward blocks, as a multiple of hidden_size that is a whole number; SwiGLU takes two "
        "thirds of it.",
        into<&Dinov2::mlp_ratio>),
    row::hidden_act(into<&Dinov2::hidden_act>),
    row::real("model.hidden_dropout_prob", "0", {0, 0.99},
              "Share of the embedding's and the attention's outputs that training sets to zero.",
              into<&Dinov2::hidden_dropout_prob>),
    row::attention_dropout("model.attention_probs_dropout_prob", "0", into<&Dinov2::attention_probs_dropout_prob>),
    row::initializer_range(into<&Dinov2::initializer_range>),
    row::norm_eps("model.layer_norm_eps", "1e-6", into<&Dinov2::layer_norm_eps>),
    row::whole("model.image_size", "64", {1, 16'384},
               "Side of the square images that the table of positions is for; other sizes interpolate it.",
               into<&Dinov2::image_size>, "pixels"),
    row::whole("model.patch_size", "8", {1, 1024}, "Side of the square patches that become tokens.",
               into<&Dinov2::patch_size>, "pixels"),
    row::whole("model.num_channels", "3", {1, 1024}, "Channels of an image.", into<&Dinov2::num_channels>),
    row::flag("model.qkv_bias", "true", "Whether the attention's queries, keys and values have biases.",
              into<&Dinov2::qkv_bias>),
    row::real("model.layerscale_value", "1e-5", above(0, 1e3),
              "First value of the scales that the blocks' parts are multiplied by.", into<&Dinov2::layerscale_value>),
    row::real("model.drop_path_rate", "0", {0, 0.99},
              "Probability that training leaves out a part of a block for an image.", into<&Dinov2::drop_path_rate>),
    row::flag("model.use_swiglu_ffn", "false", "Whether the feed-forward blocks are SwiGLU.",
              into<&Dinov2::use_swiglu_ffn>),
    row::whole("model.num_register_tokens", "0", {0, 1024},
               "Tokens without a patch of their own, as in dinov2_with_registers.", into<&Dinov2::num_register_tokens>),
    row::flag(
        "model.use_mask_token", "true",
        "Whether there is a token that stands for masked patches; needed to train, and always there with registers.",
        into<&Dinov2::use_mask_token>),
    row::pretrained(into<&Dinov2::pretrained>),
});

/// transformers 4 rounds hidden_size x mlp_ratio down, and transformers 5 takes whole ratios alone. A ratio that is not
/// whole is fine where it means one width.
void want_whole_width(const Dinov2& model, std::vector<Conflict>& conflicts) {
  const double width = static_cast<double>(model.hidden_size) * model.mlp_ratio;
  if (width == std::floor(width)) return;
  const auto text = [](double number) { return print(Key{.name = "number", .kind = Kind::kReal}, number); };
  const double below = std::floor(model.mlp_ratio);
  add_conflict(conflicts, "model.mlp_ratio",
               "want hidden_size x mlp_ratio to be a whole number, not " + std::to_string(model.hidden_size) + " x " +
                   text(model.mlp_ratio) + " = " + text(width),
               "try " + (below > 0 ? text(below) + " or " : std::string()) + text(below + 1), {"model.hidden_size"});
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
    add_conflict(conflicts, "model.image_size", "want at least patch_size = " + std::to_string(model.patch_size),
                 "an image has one patch or more", {"model.patch_size"});
  }
  if (model.inner_size() < 1) {
    add_conflict(conflicts, "model.mlp_ratio",
                 "want feed-forward blocks of at least one element, not of hidden_size x mlp_ratio < 1", "4 is common",
                 {"model.hidden_size"});
  } else {
    want_whole_width(model, conflicts);
  }
  if (model.num_register_tokens > 0 && !model.use_mask_token) {
    add_conflict(conflicts, "model.use_mask_token",
                 "want true with num_register_tokens = " + std::to_string(model.num_register_tokens),
                 "dinov2_with_registers always has a mask token", {"model.num_register_tokens"});
  }
  return conflicts;
}

}  // namespace spec
