#pragma once

#include <string>

#include "spec/table.h"

namespace spec {

/// Sizes of a T5 model (Raffel et al., arXiv 1910.10683), named as in a Hugging Face config.json, and where its first
/// weights come from.
struct T5 {
  std::int64_t vocab_size = 0;  // 0: what the data needs
  std::int64_t d_model = 0;
  std::int64_t d_kv = 0;
  std::int64_t d_ff = 0;
  std::int64_t num_layers = 0;  // of the encoder
  std::int64_t num_decoder_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t relative_attention_num_buckets = 0;
  std::int64_t relative_attention_max_distance = 0;
  double dropout_rate = 0;
  double layer_norm_epsilon = 0;
  double initializer_factor = 0;
  std::string feed_forward_proj;
  bool tie_word_embeddings = true;
  bool scale_decoder_outputs = true;  // of a tied head
  std::int64_t pad_token_id = 0;
  std::int64_t eos_token_id = 0;
  std::int64_t decoder_start_token_id = 0;
  std::string pretrained;  // folder of a Hugging Face model to start from; empty: drawn weights

  /// Width of all heads together.
  std::int64_t inner_size() const { return num_heads * d_kv; }
  bool is_gated() const { return feed_forward_proj.starts_with("gated-"); }
  /// True if the head reads the decoder's output divided by the root of d_model. A head of its own never does.
  bool scales_head() const { return tie_word_embeddings && scale_decoder_outputs; }
  /// The nonlinear function by its Hugging Face name. "gated-gelu" means GELU by tanh, "gelu" the one by erf.
  std::string activation() const;
};

/// The rows of T5.
const Table& t5();

/// The contradictions between the model's sizes, each of which is above 0.
std::vector<Conflict> conflicts_of(const T5& model);

}  // namespace spec
