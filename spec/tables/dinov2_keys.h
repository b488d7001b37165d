#pragma once

#include <array>
#include <string>

#include "spec/table.h"

namespace spec {

/// The images of ImageNet: mean and standard deviation of red, green and blue, each from 0 to 1. DINOv2 reads images
/// without this mean and divided by this deviation.
inline constexpr std::array<double, 3> kImageNetMean{0.485, 0.456, 0.406};
inline constexpr std::array<double, 3> kImageNetDeviation{0.229, 0.224, 0.225};

/// Sizes of a DINOv2 vision transformer, named as in a Hugging Face config.json, and where its first weights come from.
/// With registers it is transformers' dinov2_with_registers, else its dinov2.
struct Dinov2 {
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  double mlp_ratio = 0;
  std::string hidden_act;
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  double initializer_range = 0;
  double layer_norm_eps = 0;
  std::int64_t image_size = 0;
  std::int64_t patch_size = 0;
  std::int64_t num_channels = 0;
  bool qkv_bias = true;
  double layerscale_value = 0;
  double drop_path_rate = 0;
  bool use_swiglu_ffn = false;
  std::int64_t num_register_tokens = 0;
  bool use_mask_token = true;
  std::string pretrained;  // folder of a Hugging Face model to start from; empty: drawn weights

  std::int64_t head_size() const { return hidden_size / num_attention_heads; }
  /// Patches along a side of an image of `image_size`.
  std::int64_t grid() const { return image_size / patch_size; }
  /// Width inside the feed-forward blocks. SwiGLU has two matrices to the inside, so it takes two thirds, rounded up to
  /// a multiple of 8.
  std::int64_t inner_size() const {
    const auto plain = static_cast<std::int64_t>(static_cast<double>(hidden_size) * mlp_ratio);
    return use_swiglu_ffn ? (static_cast<std::int64_t>(static_cast<double>(plain) * 2 / 3) + 7) / 8 * 8 : plain;
  }
};

/// The rows of Dinov2.
const Table& dinov2();

/// The contradictions between the model's sizes, each of which is above 0.
std::vector<Conflict> conflicts_of(const Dinov2& model);

}  // namespace spec
