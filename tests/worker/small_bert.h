#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/initialize.h"
#include "tests/worker/small_llama.h"
#include "worker/models/bert/bert_model.h"
#include "worker/models/family.h"

namespace worker::testing {

/// The sizes of a BERT that computes in milliseconds: 40 tokens, 2 layers of 2 heads, no dropout.
inline spec::Bert small_bert(bool tied = true) {
  auto c = spec::standard<spec::Bert>(spec::bert());
  c.vocab_size = 40;
  c.hidden_size = 16;
  c.intermediate_size = 24;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 2;
  c.max_position_embeddings = 32;
  c.hidden_dropout_prob = c.attention_probs_dropout_prob = c.classifier_dropout = 0;
  c.tie_word_embeddings = tied;
  return c;
}

/// First values of a size that matters.
inline fsdp::Draw bert_draw() {
  return [](const std::string& name, const at::Tensor& into, at::Generator& random) {
    spec::Values values;
    values.set("model.initializer_range", 0.2);
    bert_family().draw(values, name, into, random);
  };
}

template <class Model, class... Arguments>
std::shared_ptr<Model> drawn_bert(const Arguments&... arguments) {
  auto model = std::make_shared<Model>(arguments...);
  fsdp::initialize(*model, 1, bert_draw());
  return model;
}

/// bool [rows, positions]: so many positions of each row count.
inline at::Tensor mask_of(const std::vector<std::int64_t>& lengths, std::int64_t positions) {
  return at::arange(positions).unsqueeze(0) < at::tensor(lengths).unsqueeze(1);
}

}  // namespace worker::testing
