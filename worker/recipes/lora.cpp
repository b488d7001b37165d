#include "recipes/lora.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "fsdp/tensor_files.h"
#include "models/config_json.h"
#include "models/layers/linear.h"
#include "os/sha256.h"
#include "rank/errors.h"

namespace worker {
namespace {

using fsdp::Json;

constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight", kWeight = ".weight";
/// What PEFT puts before the names of a model's modules.
constexpr std::string_view kPeftPrefix = "base_model.model.";

std::vector<std::string> layers_of(const schema::Lora& lora, const Family& family) {
  std::istringstream words(!lora.layers.empty()        ? lora.layers
                           : family.name == "gpt_neox" ? "query_key_value"
                                                       : "q_proj v_proj");
  std::vector<std::string> out;
  for (std::string word; words >> word;) out.push_back(word);
  return out;
}

double scale_of(const schema::Lora& lora) {
  return lora.alpha / static_cast<double>(lora.rank);
}

}  // namespace

bool is_of_adapter(const std::string& parameter) {
  return parameter.find(".lora_A.") != std::string::npos || parameter.find(".lora_B.") != std::string::npos;
}

Adapters::Adapters(schema::Lora lora, const Family& family, Part& part)
    : lora_(std::move(lora)), layers_(layers_of(lora_, family)) {
  std::set<std::string> missing(layers_.begin(), layers_.end()), linear;
  for (const auto& item : part.module->named_modules()) {
    auto* module = dynamic_cast<Linear*>(item.value().get());
    if (module == nullptr) continue;
    const std::string leaf = item.key().substr(item.key().rfind('.') + 1);
    linear.insert(leaf);
    if (std::ranges::find(layers_, leaf) == layers_.end()) continue;
    module->add_adapter(lora_.rank, scale_of(lora_), lora_.dropout);
    inputs_[item.key() + std::string(kA)] = module->weight.size(1);
    missing.erase(leaf);
  }
  if (!missing.empty()) {
    std::string there;
    for (const auto& leaf : linear) there += (there.empty() ? "" : ", ") + leaf;
    throw UsageError("train.lora_layers: the model has no linear layer \"" + *missing.begin() + "\"; it has " + there);
  }
  for (auto& item : part.module->named_parameters()) item.value().requires_grad_(is_of_adapter(item.key()));
  part.saved = is_of_adapter;
}

void Adapters::draw(const std::string& name, const at::Tensor& values, at::Generator& random) const {
  const auto in = inputs_.find(name);
  if (in == inputs_.end()) {
    values.zero_();
    return;
  }
  const double bound = 1 / std::sqrt(static_cast<double>(in->second));
  values.uniform_(-bound, bound, random);
}

std::string fingerprint_of(const std::filesystem::path& pretrained) {
  const fsdp::TensorFiles files(pretrained);
  os::Sha256 hash;
  for (const auto& [name, place] : files.tensors()) {
    std::ostringstream line;
    line << name << ' ' << static_cast<int>(place.entry.dtype) << ' ' << at::IntArrayRef(place.entry.shape) << ' '
         << place.entry.begin << ' ' << place.entry.end << '\n';
    hash.add(line.str());
  }
  return "sha256:" + os::hex(hash.digest());
}

void Adapters::complete_merged(fsdp::ExportOptions& options) const {
  options.name_of = [](const std::string& name) { return is_of_adapter(name) ? std::nullopt : std::optional(name); };
  options.value_of = [scale = scale_of(lora_), inputs = inputs_](const std::string& name, const at::Tensor& value,
                                                                 const auto& of_unit) {
    if (!name.ends_with(kWeight)) return value;
    const std::string layer = name.substr(0, name.size() - kWeight.size());
    if (!inputs.contains(layer + std::string(kA))) return value;
    const at::Tensor a = of_unit(layer + std::string(kA)), b = of_unit(layer + std::string(kB));
    return value + scale * b.matmul(a);
  };
}

void Adapters::complete(const std::string& pretrained, fsdp::ExportOptions& options) const {
  if (lora_.merged) return complete_merged(options);
  options.texts.erase(kModelConfigFile);
  options.file_stem = "adapter_model";
  options.name_of = [](const std::string& name) {
    return is_of_adapter(name) ? std::optional(std::string(kPeftPrefix) + name) : std::nullopt;
  };
  Json config;
  config["peft_type"] = "LORA";
  config["task_type"] = "CAUSAL_LM";
  config["r"] = lora_.rank;
  config["lora_alpha"] = lora_.alpha;
  config["lora_dropout"] = lora_.dropout;
  Json::Array layers;
  for (const auto& layer : layers_) layers.emplace_back(layer);
  config["target_modules"] = layers;
  config["bias"] = "none";
  config["fan_in_fan_out"] = false;
  config["inference_mode"] = true;
  config["base_model_name_or_path"] = pretrained;
  options.texts["adapter_config.json"] = config.dump(2) + "\n";
}

}  // namespace worker
