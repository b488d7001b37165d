#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fsdp/engine/initialize.h"
#include "worker/models/family.h"
#include "worker/models/t5/t5_model.h"

namespace worker::testing {

/// The sizes of a T5 that computes in milliseconds: 40 tokens, 2 encoder and 3 decoder blocks of 2 heads, 8 buckets.
inline spec::T5 small_t5(const char* feed_forward = "relu", bool tied = true) {
  auto c = spec::standard<spec::T5>(spec::t5());
  c.vocab_size = 40;
  c.d_model = 16;
  c.d_kv = 6;
  c.d_ff = 24;
  c.num_layers = 2;
  c.num_decoder_layers = 3;
  c.num_heads = 2;
  c.relative_attention_num_buckets = 8;
  c.relative_attention_max_distance = 20;
  c.dropout_rate = 0;
  c.feed_forward_proj = feed_forward;
  c.tie_word_embeddings = tied;
  return c;
}

/// A model with drawn values.
inline std::shared_ptr<T5ForConditionalGeneration> drawn_t5(const spec::T5& config, std::uint64_t seed = 1) {
  const auto values = [&] {
    spec::Values out;
    for (const auto& [name, size] : {std::pair{"model.d_model", config.d_model},
                                     {"model.d_kv", config.d_kv},
                                     {"model.d_ff", config.d_ff},
                                     {"model.num_heads", config.num_heads}})
      out.set(name, size);
    out.set("model.initializer_factor", config.initializer_factor);
    return out;
  }();
  auto model = std::make_shared<T5ForConditionalGeneration>(config);
  fsdp::initialize(*model, seed, [&](const std::string& name, const at::Tensor& into, at::Generator& random) {
    t5_family().draw(values, name, into, random);
  });
  return model;
}

}  // namespace worker::testing
