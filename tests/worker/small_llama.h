#pragma once

#include <ATen/ops/randint.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "fsdp/engine/initialize.h"
#include "worker/models/llama/llama_model.h"
#include "worker/models/ops.h"

namespace worker::testing {

/// The sizes of a Llama that computes in milliseconds: 40 tokens, 2 layers of 4 heads.
inline spec::Llama small_llama(std::int64_t kv_heads = 2, bool tied = false) {
  auto c = spec::standard<spec::Llama>(spec::llama());
  c.vocab_size = 40;
  c.hidden_size = 16;
  c.intermediate_size = 24;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 4;
  c.num_key_value_heads = kv_heads;
  c.max_position_embeddings = 32;
  c.tie_word_embeddings = tied;
  return c;
}

/// A model with drawn values.
inline std::shared_ptr<LlamaForCausalLm> drawn_llama(const spec::Llama& config, std::uint64_t seed = 1) {
  auto model = std::make_shared<LlamaForCausalLm>(config);
  fsdp::initialize(*model, seed, [&](const std::string& name, const at::Tensor& values, at::Generator& random) {
    draw_normal(name, values, config.initializer_range, random);
  });
  return model;
}

inline std::map<std::string, at::Tensor> parameters_of(const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> out;
  for (const auto& item : model.named_parameters()) out[item.key()] = item.value();
  return out;
}

/// Token ids below 40 that are the same for equal shapes.
inline at::Tensor small_ids(std::int64_t batch, std::int64_t positions) {
  at::manual_seed(5);
  return at::randint(0, 40, {batch, positions}, at::kLong);
}

}  // namespace worker::testing
