#pragma once

#include <string>

#include "spec/rope_scaling.h"
#include "spec/table.h"

namespace spec {

/// Sizes of a Llama model, named as in a Hugging Face config.json, and where its first weights come from.
struct Llama {
  std::int64_t vocab_size = 0;  // 0: what the data needs
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  double rope_theta = 0;
  RopeScaling rope_type = RopeScaling::kDefault;
  double rope_factor = 8;  // this and the next three: as Llama 3.1 has them
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  std::int64_t rope_original_max_position_embeddings = 8192;
  double rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  double attention_dropout = 0;
  double initializer_range = 0;
  std::string pretrained;  // folder of a Hugging Face model to start from; empty: drawn weights

  /// Width of a head of queries, keys and values.
  std::int64_t head_size() const { return head_dim > 0 ? head_dim : hidden_size / num_attention_heads; }
};

/// The rows of Llama.
const Table& llama();

/// The contradictions between the model's sizes, each of which is above 0.
std::vector<Conflict> conflicts_of(const Llama& model);

}  // namespace spec
