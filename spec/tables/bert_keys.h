#pragma once

#include <string>

#include "spec/table.h"

namespace spec {

/// Sizes of a BERT model, named as in a Hugging Face config.json, and where its first weights come from.
struct Bert {
  std::int64_t vocab_size = 0;  // 0: what the data needs
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t type_vocab_size = 0;
  std::string hidden_act;
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  double classifier_dropout = -1;  // below 0: hidden_dropout_prob
  double layer_norm_eps = 0;
  double initializer_range = 0;
  std::int64_t pad_token_id = 0;
  bool tie_word_embeddings = true;
  std::string pretrained;  // folder of a Hugging Face model to start from; empty: drawn weights

  double dropout_of_classifier() const { return classifier_dropout < 0 ? hidden_dropout_prob : classifier_dropout; }
};

/// The rows of Bert.
const Table& bert();

/// The contradictions between the model's sizes.
std::vector<Conflict> conflicts_of(const Bert& model);

}  // namespace spec
