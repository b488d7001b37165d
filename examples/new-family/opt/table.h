#pragma once

#include <cstdint>
#include <string>

#include "spec/table.h"

namespace spec {

/// Sizes of an OPT, named as in a Hugging Face config.json, and where its first weights come from.
struct Opt {
  std::int64_t vocab_size = 0;  // 0: what the data needs
  std::int64_t hidden_size = 0;
  std::int64_t ffn_dim = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t max_position_embeddings = 0;
  double dropout = 0;
  double init_std = 0;
  std::string pretrained;  // folder of a Hugging Face model to start from; empty: drawn weights

  std::int64_t head_size() const { return hidden_size / num_attention_heads; }
};

/// The rows of Opt.
const Table& opt();

}  // namespace spec
