#pragma once

#include <string>

#include "spec/table.h"

namespace spec {

/// Sizes of a GPT-NeoX model such as Pythia, named as in a Hugging Face config.json, and where its first weights come
/// from.
struct GptNeoX {
  std::int64_t vocab_size = 0;  // 0: what the data needs
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t max_position_embeddings = 0;
  std::string hidden_act;
  double rotary_pct = 0;
  double rotary_emb_base = 0;
  double layer_norm_eps = 0;
  bool use_parallel_residual = true;
  bool tie_word_embeddings = false;
  bool attention_bias = true;
  double attention_dropout = 0;
  double hidden_dropout = 0;
  double initializer_range = 0;
  std::string pretrained;  // folder of a Hugging Face model to start from; empty: drawn weights

  std::int64_t head_size() const { return hidden_size / num_attention_heads; }
  /// Elements of a head that the rotary embedding turns.
  std::int64_t rotary_size() const { return static_cast<std::int64_t>(static_cast<double>(head_size()) * rotary_pct); }
};

/// The rows of GptNeoX.
const Table& gpt_neox();

/// The contradictions between the model's sizes, each of which is above 0.
std::vector<Conflict> conflicts_of(const GptNeoX& model);

}  // namespace spec
