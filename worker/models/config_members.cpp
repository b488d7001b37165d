#include "worker/models/config_members.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "worker/models/config_json.h"

namespace worker {
namespace {

using fsdp::Json;

/// Members that transformers' PretrainedConfig gives to every family.
constexpr auto kNoEffectAnywhere = std::to_array<std::string_view>(
    {// Members that want_family() has read.
     "model_type", "architectures",
     // The dtype is an option of each program.
     "dtype", "torch_dtype", "use_bfloat16", "tf_legacy_loss",
     // Settings of what calls in Python return and keep.
     "return_dict", "use_return_dict", "output_hidden_states", "output_attentions", "torchscript", "use_cache",
     "output_past", "keys_to_ignore_at_inference", "gradient_checkpointing", "chunk_size_feed_forward",
     "attn_implementation", "_attn_implementation", "_attn_implementation_internal", "_attn_implementation_autoset",
     "_experts_implementation", "_experts_implementation_internal", "_output_attentions",
     // Names, versions, and code that transformers runs only when it is told to trust it.
     "transformers_version", "name_or_path", "_name_or_path", "_commit_hash", "tokenizer_class", "processor_class",
     "auto_map", "finetuning_task",
     // Notes of other programs.
     "transformers.js_config", "unsloth_version", "unsloth_fixed",
     // Settings of pipelines in Python.
     "prefix", "task_specific_params",
     // Ids of tokens: the tokenizer says them. A family that reads one has a row for it.
     "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id",
     "decoder_start_token_id",
     // Settings of classifiers: a family with a classifier reads them.
     "id2label", "label2id", "num_labels", "problem_type"});

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

/// Members of generation under all of whose values the choice of tokens stays.
constexpr auto kFreeInGeneration = std::to_array<std::string_view>(
    {// Read.
     "eos_token_id", "decoder_start_token_id",
     // The options of muster generate say how tokens are searched and drawn, and how many.
     "do_sample", "temperature", "top_k", "top_p", "top_h", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
     "num_beams", "num_beam_groups", "early_stopping", "length_penalty", "diversity_penalty", "penalty_alpha",
     "num_return_sequences", "max_length", "max_new_tokens", "max_time", "renormalize_logits",
     // Members of no effect on the tokens.
     "bos_token_id", "pad_token_id", "remove_invalid_values", "low_memory", "use_cache", "cache_implementation",
     "cache_config", "return_legacy_cache", "prefill_chunk_size", "return_dict_in_generate", "output_attentions",
     "output_hidden_states", "output_scores", "output_logits", "is_assistant", "num_assistant_tokens",
     "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind",
     "target_lookbehind", "prompt_lookup_num_tokens", "max_matching_ngram_size", "disable_compile", "compile_config",
     "generation_kwargs", "continuous_batching_config", "transformers_version", "trust_remote_code",
     "_from_model_config", "_commit_hash"});

/// Members that change the logits or the end, also of greedy text, and the values, as JSON with spaces between, under
/// which they do not.
struct GenerationMember {
  std::string_view name, allowed;
};
constexpr auto kGenerationMembers = std::to_array<GenerationMember>({
    {"min_length", "0"},
    {"min_new_tokens", "0"},
    {"repetition_penalty", "1"},
    {"encoder_repetition_penalty", "1"},
    {"no_repeat_ngram_size", "0"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"bad_words_ids", "[]"},
    {"force_words_ids", "[]"},
    {"constraints", "[]"},
    {"forced_bos_token_id", "[]"},
    {"forced_eos_token_id", "[]"},
    {"forced_decoder_ids", "[]"},
    {"suppress_tokens", "[]"},
    {"begin_suppress_tokens", "[]"},
    {"exponential_decay_length_penalty", "[]"},
    {"sequence_bias", "[] {}"},
    {"guidance_scale", "1"},
    {"stop_strings", "[]"},
    {"watermarking_config", "{}"},
    {"token_healing", "false"},
    {"dola_layers", "[]"},
});

const GenerationMember* generation_member(std::string_view name) {
  const auto* const found = std::ranges::find(kGenerationMembers, name, &GenerationMember::name);
  return found == kGenerationMembers.end() ? nullptr : found;
}

bool is_allowed(std::string_view name, const Json& value) {
  const auto* const member = generation_member(name);
  if (member == nullptr) return has(kFreeInGeneration, name);
  for (std::string_view rest = member->allowed; !rest.empty();) {
    const auto space = std::min(rest.find(' '), rest.size());
    if (equal_members(value, Json::parse(rest.substr(0, space)))) return true;
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
  return false;
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

const Json* rope_object(const Json& config, const char* name) {
  const Json* object = given_object(config, name);
  if (object == nullptr || object->size() == 0) return nullptr;
  for (const char* member : {"rope_type", "type", "rope_theta", "partial_rotary_factor"}) {
    const Json* value = object->find(member);
    if (value == nullptr || !value->is_null()) continue;
    throw std::invalid_argument(std::string(kModelConfigFile) + " has " + name + "." + member +
                                " = null, which transformers refuses; write the value, or remove the member");
  }
  return object;
}

}  // namespace

void check_sizes(std::initializer_list<std::pair<const char*, std::int64_t>> sizes) {
  for (const auto& [key, value] : sizes) {
    if (value >= 1) continue;
    throw std::invalid_argument(std::string("model.") + key + " = " + std::to_string(value) +
                                ": want a whole number of at least 1");
  }
}

void check_no_conflict(const std::vector<spec::Conflict>& conflicts) {
  if (conflicts.empty()) return;
  const auto& first = conflicts.front();
  throw std::invalid_argument(first.key + ": " + first.want + "; " + first.remedy);
}

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

bool is_of_generation(std::string_view member) {
  return has(kFreeInGeneration, member) || generation_member(member) != nullptr;
}

void check_generation(const Json& generation, std::string_view file, bool is_whole) {
  if (!generation.is_object()) return;
  for (const auto& [name, value] : generation.as_object()) {
    const bool is_known = is_of_generation(name);
    if (value.is_null() || (!is_known && !is_whole) || is_allowed(name, value)) continue;
    throw std::invalid_argument(
        std::string(file) + " has " + name + " = " + shown_value(value) + ", and " +
        (is_known ? "muster generate does not do that" : "this program does not know whether that changes the text") +
        "; remove the member to get the text without it, or generate with transformers");
  }
}

RopeObjects rope_objects(const Json& config) {
  return {rope_object(config, "rope_scaling"), rope_object(config, "rope_parameters")};
}

std::string rope_type_of(const Json& object, const std::string& where) {
  const Json *type = object.find("rope_type"), *old = object.find("type");
  if (type != nullptr && old != nullptr && !(*type == *old)) {
    throw std::invalid_argument(where + " has rope_type = " + type->dump() + " and type = " + old->dump() +
                                ", and versions of transformers differ in which one they read; remove one of the two");
  }
  const Json* said = type != nullptr ? type : old;
  if (said == nullptr) return "default";
  if (!said->is_string()) throw std::invalid_argument(where + ".rope_type = " + shown_value(*said) + ": want a text");
  return said->as_string();
}

void read_rope_number(const Json& config, const spec::Table& table, const RopeNumber& number, spec::Values& values) {
  const RopeObjects objects = rope_objects(config);
  const std::string member(number.member), alone(number.alone);
  const Json* found = given(config, alone);
  std::string where = alone;
  Json value = found != nullptr ? *found : Json(number.usual);
  const Json* written = objects.parameters == nullptr ? nullptr : objects.parameters->find(member);
  if (found == nullptr && objects.scaling == nullptr && written != nullptr) {
    value = *written;
    where = "rope_parameters." + member;
  }
  for (const auto& [object, name] :
       {std::pair{objects.scaling, "rope_scaling"}, {objects.parameters, "rope_parameters"}}) {
    const Json* other = object == nullptr ? nullptr : object->find(member);
    if (other == nullptr || equal_members(*other, value)) continue;
    throw std::invalid_argument(
        std::string(kModelConfigFile) + " has " + name + "." + member + " = " + shown_value(*other) + " and " +
        (found == nullptr ? "no " + where + ", which then is " : where + " = ") + shown_value(value) +
        " for a version of transformers; write the one with which the model was trained into "
        "both");
  }
  set_row(values, table, number.row, value, std::string(kModelConfigFile) + "'s " + where);
}

void refuse_two_ropes(const RopeObjects& objects) {
  throw std::invalid_argument(std::string(kModelConfigFile) + " has rope_scaling = " + shown_value(*objects.scaling) +
                              " and rope_parameters = " + shown_value(*objects.parameters) +
                              ", which differ; transformers passes the latter over; remove the one that is wrong");
}

}  // namespace worker
