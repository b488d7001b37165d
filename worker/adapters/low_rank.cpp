#include "worker/adapters/low_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>
#include <string_view>

#include "base/checksum.h"
#include "base/usage_error.h"
#include "fsdp/files/tensor_files.h"
#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/layers/layers.h"

namespace worker {
namespace {

using fsdp::Json;

/// Members of adapter_config.json that would change what the adapters compute, with the values under which they do not.
constexpr auto kVariants = std::to_array<OnlyValue>({{"peft_type", "\"LORA\""},
                                                     {"use_dora", "false"},
                                                     {"use_rslora", "false"},
                                                     {"use_qalora", "false"},
                                                     {"lora_bias", "false"},
                                                     {"ensure_weight_tying", "false"},
                                                     {"fan_in_fan_out", "false"},
                                                     {"bias", "\"none\""},
                                                     {"rank_pattern", "{}"},
                                                     {"alpha_pattern", "{}"},
                                                     {"loftq_config", "{}"}});

/// Members that are read, or that change nothing once the adapters are trained. Any other one that is not null is
/// refused: [Note: members of configuration files].
constexpr auto kKnownMembers = std::to_array<std::string_view>(
    {"r", "lora_alpha", "target_modules", "init_lora_weights", "base_model_name_or_path", "task_type", "lora_dropout",
     "inference_mode", "auto_mapping", "revision", "peft_version", "megatron_core", "qalora_group_size",
     "runtime_config"});

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw base::UsageError(place + ": " + why);
}

}  // namespace

std::string adapter_a(const std::string& layer) {
  return layer + ".lora_A.weight";
}

std::string adapter_b(const std::string& layer) {
  return layer + ".lora_B.weight";
}

bool is_of_adapter(const std::string& parameter) {
  return parameter.find(".lora_A.") != std::string::npos || parameter.find(".lora_B.") != std::string::npos;
}

std::map<std::string, std::int64_t> add_adapters(torch::nn::Module& model, const LowRank& adapters, double dropout,
                                                 const std::string& key) {
  std::map<std::string, std::int64_t> inputs;
  std::set<std::string> missing(adapters.layers.begin(), adapters.layers.end()), linear;
  for (const auto& item : model.named_modules()) {
    auto* module = dynamic_cast<Linear*>(item.value().get());
    if (module == nullptr) continue;
    const std::string leaf = item.key().substr(item.key().rfind('.') + 1);
    linear.insert(leaf);
    if (std::ranges::find(adapters.layers, leaf) == adapters.layers.end()) continue;
    module->add_adapter(adapters.rank, adapters.scale(), dropout);
    inputs[item.key()] = module->weight.size(1);
    missing.erase(leaf);
  }
  if (missing.empty()) return inputs;
  std::string there;
  for (const auto& leaf : linear) there += (there.empty() ? "" : ", ") + leaf;
  refuse(key, "the model has no linear layer \"" + *missing.begin() + "\"; it has " + there);
}

std::set<std::string> weights_of_layers(const torch::nn::Module& model) {
  std::set<std::string> out;
  for (const auto& item : model.named_modules()) {
    const auto* module = item.value().get();
    if (dynamic_cast<const Linear*>(module) == nullptr || dynamic_cast<const OuterPart*>(module) != nullptr) continue;
    const std::string weight = item.key() + ".weight";
    if (!is_of_adapter(weight)) out.insert(weight);
  }
  return out;
}

Json adapters_json(const LowRank& adapters) {
  Json out;
  out["r"] = adapters.rank;
  out["lora_alpha"] = adapters.alpha;
  out["target_modules"] = Json::Array(adapters.layers.begin(), adapters.layers.end());
  return out;
}

LowRank read_adapters(const Json& json, const std::string& place) {
  const auto member = [&](const char* name) -> const Json& {
    const Json* found = given(json, name);
    if (found == nullptr)
      refuse(place, std::string("it has no ") + name + "; give the adapters of a training or of PEFT");
    return *found;
  };
  const auto wrong = [&](const char* name, const char* want) {
    refuse(place, std::string(name) + " is " + member(name).dump() + "; want " + want);
  };
  for (const auto& [name, plain] : kVariants) {
    const Json* found = given(json, name);
    if (found != nullptr && !(*found == Json::parse(plain)))
      refuse(place, std::string(name) + " is " + found->dump() + ", and only " + std::string(plain) + " is supported");
  }
  for (const auto& [name, value] : json.is_object() ? json.as_object() : Json::Object()) {
    const bool is_variant = std::ranges::find(kVariants, name, &OnlyValue::member) != kVariants.end();
    if (value.is_null() || is_variant || std::ranges::find(kKnownMembers, name) != kKnownMembers.end()) continue;
    refuse(place, name + " is " + shown_value(value) +
                      ", and this program does not know whether that changes what the adapters compute; remove the "
                      "member if it changes nothing");
  }
  // These begin from a changed base, which the folder of the base does not have.
  const Json* first = given(json, "init_lora_weights");
  if (first != nullptr && first->is_string() && first->as_string() != "gaussian")
    refuse(place, "init_lora_weights is " + first->dump() + "; convert the adapters to ordinary ones with PEFT");
  LowRank out;
  const Json &rank = member("r"), &alpha = member("lora_alpha"), &layers = member("target_modules");
  if (!rank.is_int() || rank.as_int() < 1) wrong("r", "a whole number above 0");
  out.rank = rank.as_int();
  if (!alpha.is_number() || !std::isfinite(alpha.as_double())) wrong("lora_alpha", "a number");
  out.alpha = alpha.as_double();
  if (!layers.is_array() || layers.size() == 0) wrong("target_modules", "the names of layers");
  for (const Json& layer : layers.as_array()) {
    if (!layer.is_string()) wrong("target_modules", "the names of layers");
    out.layers.push_back(layer.as_string());
  }
  return out;
}

std::string fingerprint_of(const std::filesystem::path& pretrained) {
  const fsdp::TensorFiles files(pretrained);
  base::Sha256 hash;
  for (const auto& [name, place] : files.tensors()) {
    std::ostringstream line;
    line << name << ' ' << static_cast<int>(place.entry.dtype) << ' ' << at::IntArrayRef(place.entry.shape) << ' '
         << place.entry.begin << ' ' << place.entry.end << '\n';
    hash.add(line.str());
  }
  return "sha256:" + base::hex(hash.digest());
}

}  // namespace worker
