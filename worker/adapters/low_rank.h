#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fsdp/text/json.h"

// Low-rank adapters (Hu et al., LoRA, arXiv 2106.09685) on linear layers of a model. Names and files are PEFT's.
namespace worker {

/// The adapters of a model: the result of a linear layer gets (alpha / rank) B A x added.
struct LowRank {
  std::int64_t rank = 0;
  double alpha = 0;
  std::vector<std::string> layers;  ///< last parts of the names of linear layers

  double scale() const { return alpha / static_cast<double>(rank); }
};

/// The files of an export of adapters alone, and the member of a checkpoint's "extra" that describes them.
inline constexpr const char *kAdapterConfigFile = "adapter_config.json", *kAdapterStem = "adapter_model",
                            *kAdaptersOfExtra = "adapters";
/// Prefix that PEFT puts before the names of a model's modules.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

/// True if a parameter belongs to an adapter.
bool is_of_adapter(const std::string& parameter);

/// The name of the parameter A of a layer, and that of B.
std::string adapter_a(const std::string& layer);
std::string adapter_b(const std::string& layer);

/// Adds adapters to the chosen linear layers of a model, before it is sharded. `dropout`: see Linear::add_adapter().
/// Returns the layers, with the number of inputs of each. Throws base::UsageError with `key` where a name fits no
/// layer.
std::map<std::string, std::int64_t> add_adapters(torch::nn::Module& model, const LowRank& adapters, double dropout,
                                                 const std::string& key);

/// The weights of a model's linear layers, the head's excepted: those that bitsandbytes' and PEFT's QLoRA quantises.
/// Weights of adapters are not among them.
std::set<std::string> weights_of_layers(const torch::nn::Module& model);

/// The members that adapter_config.json and a checkpoint have alike: r, lora_alpha, target_modules.
fsdp::Json adapters_json(const LowRank& adapters);
/// Reads them. Throws base::UsageError with `place` for a member that is missing or impossible, and for variants of
/// adapters that are not supported.
LowRank read_adapters(const fsdp::Json& json, const std::string& place);

/// Recognises the files of a model: SHA-256 of their names, sizes and headers. Throws as fsdp::TensorFiles does.
std::string fingerprint_of(const std::filesystem::path& pretrained);

}  // namespace worker
