#include "worker/recipes/lora.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <utility>

#include "base/usage_error.h"
#include "worker/models/config_json.h"

namespace worker {
namespace {

using fsdp::Json;

constexpr std::string_view kWeight = ".weight";

std::vector<std::string> layers_of(const spec::Lora& lora, const Family& family) {
  if (lora.layers.empty() && family.lora_layers.empty()) {
    throw base::UsageError("train.lora_layers is missing: the family " + std::string(family.name) +
                           " has no usual layers for adapters; name linear layers of the model");
  }
  std::istringstream words(lora.layers.empty() ? std::string(family.lora_layers) : lora.layers);
  std::vector<std::string> out;
  for (std::string word; words >> word;) out.push_back(word);
  return out;
}

}  // namespace

Adapters::Adapters(spec::Lora lora, const Family& family, Part& part)
    : lora_(std::move(lora)),
      shape_{.rank = lora_.rank, .alpha = lora_.alpha, .layers = layers_of(lora_, family)},
      inputs_(add_adapters(*part.module, shape_, lora_.dropout, "train.lora_layers")) {
  for (auto& item : part.module->named_parameters()) item.value().requires_grad_(is_of_adapter(item.key()));
  part.saved = is_of_adapter;
}

void Adapters::draw(const std::string& name, const at::Tensor& values, at::Generator& random) const {
  for (const auto& [layer, inputs] : inputs_) {
    if (name != adapter_a(layer)) continue;
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    values.uniform_(-bound, bound, random);
    return;
  }
  values.zero_();
}

void Adapters::note(Json& extra) const {
  extra[kAdaptersOfExtra] = adapters_json(shape_);
}

void Adapters::complete_merged(fsdp::ExportOptions& options) const {
  options.name_of = [](const std::string& name) { return is_of_adapter(name) ? std::nullopt : std::optional(name); };
  options.value_of = [scale = shape_.scale(), inputs = inputs_](const std::string& name, const at::Tensor& value,
                                                                const auto& of_unit) {
    if (!name.ends_with(kWeight)) return value;
    const std::string layer = name.substr(0, name.size() - kWeight.size());
    if (!inputs.contains(layer)) return value;
    return value + scale * of_unit(adapter_b(layer)).matmul(of_unit(adapter_a(layer)));
  };
}

void Adapters::complete(const std::string& pretrained, fsdp::ExportOptions& options) const {
  if (lora_.merged) return complete_merged(options);
  options.texts.clear();  // the files of the model itself describe it
  options.file_stem = kAdapterStem;
  options.name_of = [](const std::string& name) {
    return is_of_adapter(name) ? std::optional(std::string(kPeftPrefix) + name) : std::nullopt;
  };
  Json config = adapters_json(shape_);
  config["peft_type"] = "LORA";
  config["task_type"] = "CAUSAL_LM";
  config["lora_dropout"] = lora_.dropout;
  config["bias"] = "none";
  config["fan_in_fan_out"] = false;
  config["inference_mode"] = true;
  config["base_model_name_or_path"] = pretrained;
  options.texts[kAdapterConfigFile] = config.dump(2) + "\n";
}

}  // namespace worker
