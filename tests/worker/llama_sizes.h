#pragma once

#include "fsdp/json.h"
#include "schema/tables/llama.h"

/// The sizes that a config.json of transformers gives.
inline schema::Llama llama_sizes(const fsdp::Json& json) {
  auto sizes = schema::standard<schema::Llama>(schema::llama());
  sizes.vocab_size = json.at("vocab_size").as_int();
  sizes.hidden_size = json.at("hidden_size").as_int();
  sizes.intermediate_size = json.at("intermediate_size").as_int();
  sizes.num_hidden_layers = json.at("num_hidden_layers").as_int();
  sizes.num_attention_heads = json.at("num_attention_heads").as_int();
  sizes.num_key_value_heads = json.at("num_key_value_heads").as_int();
  sizes.max_position_embeddings = json.at("max_position_embeddings").as_int();
  sizes.rms_norm_eps = json.at("rms_norm_eps").as_double();
  sizes.tie_word_embeddings = json.at("tie_word_embeddings").as_bool();
  const fsdp::Json* rope = json.find("rope_parameters");  // transformers 5 moved rope_theta here
  sizes.rope_theta = (rope != nullptr ? *rope : json).at("rope_theta").as_double();
  return sizes;
}
