#pragma once

#include <string>

#include "schema/table.h"

namespace schema {

/// Sizes of a Llama model, named as in a Hugging Face config.json, and where its first weights come from.
struct Llama {
  std::int64_t vocab_size = 0;  // 0: what the data needs
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t max_position_embeddings = 0;
  double rope_theta = 0;
  double rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  double initializer_range = 0;
  std::string pretrained;  // folder of a Hugging Face model to start from; empty: drawn weights

  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
};

/// The rows of Llama.
const Table& llama();

/// The contradictions between the model's sizes, each of which is above 0.
std::vector<Conflict> conflicts_of(const Llama& model);

}  // namespace schema
