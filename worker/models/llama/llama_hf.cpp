#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "spec/tables/llama_keys.h"
#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/family.h"
#include "worker/models/llama/llama_model.h"

namespace worker {
namespace {

using fsdp::Json;
using spec::Values;

constexpr auto kLlamaArchitectures = std::to_array<std::string_view>({"LlamaForCausalLM", "LlamaModel"});

struct ScalingMember {
  std::string_view row, member;
};
constexpr ScalingMember kLlamaFactor{"model.rope_factor", "factor"};
constexpr auto kLlama3Members =
    std::to_array<ScalingMember>({{"model.rope_low_freq_factor", "low_freq_factor"},
                                  {"model.rope_high_freq_factor", "high_freq_factor"},
                                  {"model.rope_original_max_position_embeddings", "original_max_position_embeddings"}});

/// Members of config.json beside the rows; see [Note: members of configuration files].
constexpr auto kLlamaRead = std::to_array<std::string_view>({"rope_scaling", "rope_parameters"});
constexpr auto kLlamaOnly = std::to_array<OnlyValue>({{"hidden_act", "\"silu\""},
                                                      {"pretraining_tp", "1"},
                                                      {"is_encoder_decoder", "false"},
                                                      {"partial_rotary_factor", "1"},
                                                      {"rope_interleaved", "false"}});
constexpr auto kLlamaNoEffect = std::to_array<std::string_view>(
    {"is_decoder", "cross_attention_hidden_size", "max_sequence_length", "is_llama_config"});
constexpr auto kLlamaNullable =
    std::to_array<std::string_view>({"num_key_value_heads", "head_dim", "attention_dropout", "pretraining_tp",
                                     "partial_rotary_factor", "rope_scaling", "rope_parameters"});
constexpr RopeNumber kLlamaTheta{"model.rope_theta", "rope_theta", "rope_theta", 10000};
/// The members of both objects of rope.
constexpr auto kLlamaRopeMembers =
    std::to_array<std::string_view>({"rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
                                     "original_max_position_embeddings", "partial_rotary_factor"});

void read_llama_scaling(const Json& rope, const std::string& where, ScalingMember from, Values& values) {
  const Json* member = given(rope, from.member);
  const std::string name = where + "." + std::string(from.member);
  if (member == nullptr) throw std::invalid_argument(name + " is missing; repair the file");
  set_row(values, spec::llama(), from.row, *member, name);
}

/// Reads all that one object says but the base.
Values rope_of_llama(const Json& rope, const std::string& where) {
  const std::string type = rope_type_of(rope, where);
  if (type != "default" && type != "linear" && type != "llama3") {
    throw std::invalid_argument(where + " is of type \"" + type +
                                "\", and this Llama has default, linear and llama3 only; choose another model");
  }
  want_known_members(rope, where, kLlamaRopeMembers);
  want_member(rope, "partial_rotary_factor", 1);
  Values values;
  values.set("model.rope_type", type);
  if (type == "default") return values;
  read_llama_scaling(rope, where, kLlamaFactor, values);
  if (type != "llama3") return values;
  for (const auto& from : kLlama3Members) read_llama_scaling(rope, where, from, values);
  return values;
}

/// See [Note: rope in config.json].
void read_llama_rope(const Json& config, Values& values) {
  const RopeObjects objects = rope_objects(config);
  const std::string file = std::string(kModelConfigFile) + "'s ";
  Values said;
  said.set("model.rope_type", std::string("default"));
  if (objects.parameters != nullptr) said = rope_of_llama(*objects.parameters, file + "rope_parameters");
  if (objects.scaling != nullptr) {
    const Values scaling = rope_of_llama(*objects.scaling, file + "rope_scaling");
    if (objects.parameters != nullptr && !std::ranges::equal(scaling, said)) refuse_two_ropes(objects);
    said = scaling;
  }
  for (const auto& [row, value] : said) values.set(row, value);
  read_rope_number(config, spec::llama(), kLlamaTheta, values);
}

Values read_llama(const Json& config) {
  want_family(config, "llama", kLlamaArchitectures);
  check_config(config, spec::llama(), {kLlamaRead, kLlamaOnly, kLlamaNoEffect, kLlamaNullable});
  Values values = values_of_config(spec::llama(), config);
  set_absent(values, {{"model.vocab_size", 32000},
                      {"model.hidden_size", 4096},
                      {"model.intermediate_size", 11008},
                      {"model.num_hidden_layers", 32},
                      {"model.num_attention_heads", 32}});
  set_absent(values, "model.num_key_value_heads", values.whole("model.num_attention_heads"));
  set_absent(values, {{"model.max_position_embeddings", 2048},
                      {"model.initializer_range", 0.02},
                      {"model.rms_norm_eps", 1e-6},
                      {"model.tie_word_embeddings", false},
                      {"model.attention_bias", false},
                      {"model.mlp_bias", false},
                      {"model.attention_dropout", 0.0}});
  read_llama_rope(config, values);
  return values;
}

/// transformers 4 reads `rope_scaling`. A file of transformers 5 keeps its `rope_parameters` equal to it.
void write_llama_rope(const Values& values, Json& config) {
  const std::string type = values.has("model.rope_type") ? values.text("model.rope_type") : "default";
  const auto write_into = [&](Json& rope) {
    if (rope.contains("type")) rope["type"] = type;  // as old files have it
    if (const auto* theta = values.find("model.rope_theta"); theta != nullptr && rope.contains("rope_theta"))
      write_member(rope, "rope_theta", *theta);
    write_member(rope, "rope_type", type);
    if (type != "default") write_member(rope, kLlamaFactor.member, values.real(kLlamaFactor.row));
    for (const auto& [row, member] : kLlama3Members) {
      if (const auto* value = values.find(row); value != nullptr && type == "llama3")
        write_member(rope, member, *value);
    }
  };
  if (type != "default") write_into(config["rope_scaling"]);
  if (type == "default" && given(config, "rope_scaling") != nullptr) config["rope_scaling"] = nullptr;
  if (given(config, "rope_parameters") == nullptr) return;
  Json& parameters = config["rope_parameters"];
  write_into(parameters);
  if (const auto* theta = values.find("model.rope_theta")) write_member(parameters, "rope_theta", *theta);
}

void write_llama(const Values& values, std::string_view architecture, Json& config) {
  config["architectures"] = Json::Array{Json(architecture)};
  config["model_type"] = "llama";
  if (!config.contains("hidden_act")) config["hidden_act"] = "silu";
  write_members(config, values, spec::llama(),
                {"model.rope_type", "model.rope_factor", "model.rope_low_freq_factor", "model.rope_high_freq_factor",
                 "model.rope_original_max_position_embeddings"});
  write_llama_rope(values, config);
  write_absent_ids(config, {"bos_token_id", "eos_token_id"});
}

bool may_ignore_in_llama(std::string_view in_file, const Values& model) {
  return in_file.ends_with("rotary_emb.inv_freq") ||
         (in_file == "lm_head.weight" && model.flag("model.tie_word_embeddings"));
}

std::string llama_equal_to(std::string_view in_file, const Values& model) {
  return in_file == "lm_head.weight" && model.flag("model.tie_word_embeddings") ? "model.embed_tokens.weight" : "";
}

}  // namespace

const Family& llama_family() {
  static const Family row{.name = "llama",
                          .table = spec::llama(),
                          .architectures = kLlamaArchitectures,
                          .read = read_llama,
                          .write = write_llama,
                          .names = {.base = "model.", .may_ignore = may_ignore_in_llama, .equal_to = llama_equal_to},
                          .token_embedding = "model.embed_tokens.weight",
                          .lora_layers = "q_proj v_proj",
                          .draw = draw_by_initializer_range,
                          .layers_above =
                              [](const Values& values, const std::string& parameter) {
                                return layers_above_blocks(values, parameter, "model.layers.", "model.embed_tokens.");
                              },
                          .make_causal = [](const Values& values) -> std::shared_ptr<CausalModel> {
                            return std::make_shared<LlamaForCausalLm>(spec::bind<spec::Llama>(spec::llama(), values));
                          }};
  return row;
}

}  // namespace worker
