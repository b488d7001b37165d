#include "worker/models/config_members.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "worker/models/config_json.h"
#include "worker/models/generation_json.h"

namespace worker {
namespace {

using fsdp::Json;

/// Members that transformers' PretrainedConfig gives to every family.
constexpr auto kNoEffectAnywhere = std::to_array<std::string_view>({
    // What want_family() has read.
    "model_type",
    "architectures",
    // The dtype is an option of each program.
    "dtype",
    "torch_dtype",
    "use_bfloat16",
    "tf_legacy_loss",
    // What calls in Python return and keep.
    "return_dict",
    "use_return_dict",
    "output_hidden_states",
    "output_attentions",
    "torchscript",
    "use_cache",
    "output_past",
    "keys_to_ignore_at_inference",
    "gradient_checkpointing",
    "chunk_size_feed_forward",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "_attn_implementation_autoset",
    "_experts_implementation",
    "_experts_implementation_internal",
    "_output_attentions",
    // Names, versions, and code that transformers runs only when it is told to trust it.
    "transformers_version",
    "name_or_path",
    "_name_or_path",
    "_commit_hash",
    "tokenizer_class",
    "processor_class",
    "auto_map",
    "finetuning_task",
    // Notes of other programs.
    "transformers.js_config",
    "unsloth_version",
    "unsloth_fixed",
    // Of pipelines in Python.
    "prefix",
    "task_specific_params",
    // Ids of tokens: the tokenizer says them. A family that reads one has a row for it.
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    // Of classifiers: a family with one reads them.
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
});

constexpr auto kOnlyAnywhere = std::to_array<OnlyValue>({
    {"pruned_heads", "{}"},
    {"tie_encoder_decoder", "false"},
    {"add_cross_attention", "false"},
});

/// Members that are never here, with what to do.
struct NeverHere {
  std::string_view member, remedy;
};
constexpr auto kNeverHere = std::to_array<NeverHere>({
    {"quantization_config", "choose the model without quantization"},
    {"compression_config", "choose the model without compression"},
});

bool has(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

const OnlyValue* only_value(const ConfigMembers& members, std::string_view name) {
  for (const std::span<const OnlyValue> list : {members.only, std::span<const OnlyValue>(kOnlyAnywhere)}) {
    const auto found = std::ranges::find(list, name, &OnlyValue::member);
    if (found != list.end()) return &*found;
  }
  return nullptr;
}

const spec::Key* row_of(const spec::Table& table, std::string_view member) {
  const auto found = std::ranges::find_if(table.keys, [&](const spec::Key& key) {
    return key.kind != spec::Kind::kPath && key.name.substr(key.name.find('.') + 1) == member;
  });
  return found == table.keys.end() ? nullptr : &*found;
}

/// Refuses null for a member that the model computes with, unless null means the same for every transformers.
void check_null(std::string_view name, const spec::Table& table, const ConfigMembers& members) {
  if (has(members.nullable, name) || has(members.no_effect, name)) return;
  const auto* only = only_value(members, name);
  const auto* row = row_of(table, name);
  if (only == nullptr && row == nullptr && !has(members.read, name)) return;
  if (only != nullptr && (only->json == "false" || only->json == "{}")) return;
  const bool is_flag = (row != nullptr && row->kind == spec::Kind::kFlag) || (only != nullptr && only->json == "true");
  throw std::invalid_argument(std::string(kModelConfigFile) + " has " + std::string(name) +
                              (is_flag ? " = null, which transformers 4 takes as false, and transformers 5 does not; "
                                         "write true or false, as the model was trained"
                                       : " = null, and this program wants a value; write it, or remove the member to "
                                         "have the usual one"));
}

[[noreturn]] void refuse_member(std::string_view name, const Json& value) {
  const std::string has = std::string(kModelConfigFile) + " has " + std::string(name) + " = " + shown_value(value);
  const auto* const never = std::ranges::find(kNeverHere, name, &NeverHere::member);
  if (never != kNeverHere.end()) {
    throw std::invalid_argument(has + ", which this program does not have; " + std::string(never->remedy));
  }
  throw std::invalid_argument(has +
                              ", and this program does not know whether that changes what the model computes; remove "
                              "the member if it changes nothing, or choose another model");
}

}  // namespace

std::string shown_value(const Json& value) {
  constexpr std::size_t kMostShown = 60;
  std::string text = value.dump();
  if (text.size() <= kMostShown) return text;
  std::size_t end = kMostShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "..";
}

void check_config(const Json& config, const spec::Table& table, const ConfigMembers& members) {
  for (const auto& [name, value] : config.as_object()) {
    if (value.is_null()) {
      check_null(name, table, members);
    } else if (const auto* only = only_value(members, name)) {
      want_member(config, name, Json::parse(only->json));
    } else if (row_of(table, name) == nullptr && !has(members.read, name) && !has(members.no_effect, name) &&
               !has(kNoEffectAnywhere, name) && !is_of_generation(name)) {
      refuse_member(name, value);
    }
  }
}

}  // namespace worker
