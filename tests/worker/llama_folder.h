#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/initialize.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/text/json.h"
#include "tests/worker/temporary_folder.h"
#include "worker/models/llama/llama_model.h"
#include "worker/models/ops.h"

namespace worker::testing {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The members that transformers would write for this model, as far as its config.json has no defaults for them.
inline fsdp::Json config_json(const spec::Llama& model) {
  fsdp::Json json;
  json["model_type"] = "llama";
  json["vocab_size"] = model.vocab_size;
  json["hidden_size"] = model.hidden_size;
  json["intermediate_size"] = model.intermediate_size;
  json["num_hidden_layers"] = model.num_hidden_layers;
  json["num_attention_heads"] = model.num_attention_heads;
  json["num_key_value_heads"] = model.num_key_value_heads;
  json["rms_norm_eps"] = model.rms_norm_eps;
  json["rope_theta"] = model.rope_theta;
  return json;
}

/// The tensors of a model that is drawn with `seed`.
inline NamedTensors drawn(const spec::Llama& config, std::uint64_t seed) {
  LlamaForCausalLm model(config);
  fsdp::initialize(model, seed, [&](const std::string& name, const at::Tensor& values, at::Generator& random) {
    draw_normal(name, values, config.initializer_range, random);
  });
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value().detach());
  return tensors;
}

inline void write_folder(const std::filesystem::path& folder, const fsdp::Json& config, const NamedTensors& tensors) {
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "model.safetensors");
  write_file(folder / "config.json", config.dump());
  fsdp::write_safetensors(folder / "model.safetensors", tensors);
}

}  // namespace worker::testing
