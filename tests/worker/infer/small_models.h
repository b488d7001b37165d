#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/initialize.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/optim/optimizers.h"
#include "fsdp/text/json.h"
#include "tests/temporary_folder.h"
#include "worker/generate/decode.h"
#include "worker/infer/commands.h"
#include "worker/models/config_json.h"
#include "worker/models/family.h"

namespace infer::testing {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

/// config.json of a decoder of the byte vocabulary that computes in milliseconds.
inline fsdp::Json small_config(const std::string& family = "llama") {
  fsdp::Json config = fsdp::Json::parse(R"({"vocab_size": 257, "hidden_size": 16, "intermediate_size": 24,
      "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 48, "initializer_range": 0.5})");
  config["model_type"] = family;
  return config;
}

/// A decoder with drawn values.
inline std::shared_ptr<worker::CausalModel> drawn(const fsdp::Json& config, std::uint64_t seed = 1) {
  const auto& family = worker::family(config.at("model_type").as_string());
  const auto values = family.read(config);
  auto model = family.make_causal(values);
  fsdp::initialize(*model, seed, [&](const std::string& name, const at::Tensor& into, at::Generator& random) {
    family.draw(values, name, into, random);
  });
  return model;
}

inline Tensors tensors_of(const torch::nn::Module& model) {
  Tensors out;
  for (const auto& item : model.named_parameters()) out.emplace_back(item.key(), item.value().detach());
  return out;
}

/// A folder as save_pretrained() of transformers writes it, without a tokenizer.
inline void write_model(const std::filesystem::path& folder, const fsdp::Json& config, const Tensors& tensors) {
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "model.safetensors");
  test::write_file(folder / worker::kModelConfigFile, config.dump());
  fsdp::write_safetensors(folder / "model.safetensors", tensors);
}

/// The tokens that a model without a cache adds to a text of bytes.
inline worker::TokenIds continued(const worker::CausalModel& model, const std::string& text, int count) {
  const at::NoGradGuard no_grad;
  worker::TokenIds ids, out;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  for (int i = 0; i < count; ++i) {
    const at::Tensor logits = model.forward(at::tensor(ids).unsqueeze(0));
    out.push_back(logits.select(1, logits.size(1) - 1).argmax().item<std::int64_t>());
    ids.push_back(out.back());
    if (out.back() == 256) break;
  }
  return out;
}

/// The output and the notes of a command.
struct Printed {
  std::string out, notes;
};

inline Printed printed(const Options& options, const std::vector<std::string>& texts) {
  std::ostringstream out, notes;
  run(options, texts, {.out = out, .notes = notes});
  return {out.str(), notes.str()};
}

/// The ids of the first line of `muster-infer generate --json`.
inline worker::TokenIds generated(Options options, const std::string& text) {
  options.json = true;
  const auto line = printed(options, {text, "b"}).out;
  worker::TokenIds ids;
  const auto answer = fsdp::Json::parse(line.substr(0, line.find('\n')));
  for (const auto& id : answer.at("tokens").as_array()) ids.push_back(id.as_int());
  return ids;
}

}  // namespace infer::testing
