#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "spec/tables/gpt_neox_keys.h"
#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/family.h"
#include "worker/models/gpt_neox/gpt_neox_model.h"

namespace worker {
namespace {

using fsdp::Json;
using spec::Values;

constexpr auto kGptNeoXArchitectures = std::to_array<std::string_view>({"GPTNeoXForCausalLM", "GPTNeoXModel"});

constexpr auto kGptNeoXRope =
    std::to_array<RopeNumber>({{"model.rotary_emb_base", "rope_theta", "rotary_emb_base", 10000},
                               {"model.rotary_pct", "partial_rotary_factor", "rotary_pct", 0.25}});

/// Members of config.json beside the rows; see [Note: members of configuration files].
constexpr auto kGptNeoXRead =
    std::to_array<std::string_view>({"rope_scaling", "rope_parameters", "rope_theta", "partial_rotary_factor"});
constexpr auto kGptNeoXOnly = std::to_array<OnlyValue>({{"is_encoder_decoder", "false"}});
constexpr auto kGptNeoXNoEffect =
    std::to_array<std::string_view>({"is_decoder", "cross_attention_hidden_size", "classifier_dropout"});
/// The members of both objects of rope.
constexpr auto kGptNeoXRopeMembers =
    std::to_array<std::string_view>({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"});

/// See [Note: rope in config.json].
void read_gpt_neox_rope(const Json& config, Values& values) {
  const RopeObjects objects = rope_objects(config);
  for (const auto& [rope, name] :
       {std::pair{objects.scaling, "rope_scaling"}, {objects.parameters, "rope_parameters"}}) {
    if (rope == nullptr) continue;
    const std::string where = std::string(kModelConfigFile) + "'s " + name;
    if (const std::string type = rope_type_of(*rope, where); type != "default") {
      throw std::invalid_argument(where + " is of type \"" + type +
                                  "\", and this GPT-NeoX has default only; choose another model");
    }
    want_known_members(*rope, where, kGptNeoXRopeMembers);
  }
  for (const auto& number : kGptNeoXRope) read_rope_number(config, spec::gpt_neox(), number, values);
}

/// transformers 4 writes the members of the objects beside them too, and reads them under their other names alone.
void want_equal_beside(const Json& config, const RopeNumber& number, const Values& values) {
  const Json* beside = given(config, number.member);
  const double read = values.real(number.row);
  if (beside == nullptr || (beside->is_number() && beside->as_double() == read)) return;
  throw std::invalid_argument(std::string(kModelConfigFile) + " has " + std::string(number.member) + " = " +
                              shown_value(*beside) + ", and transformers reads " + std::string(number.alone) + " = " +
                              Json(read).dump() + " instead; make them equal");
}

Values read_gpt_neox(const Json& config) {
  want_family(config, "gpt_neox", kGptNeoXArchitectures);
  check_config(config, spec::gpt_neox(), {kGptNeoXRead, kGptNeoXOnly, kGptNeoXNoEffect, /*nullable=*/kGptNeoXRead});
  Values values = values_of_config(spec::gpt_neox(), config);
  read_gpt_neox_rope(config, values);
  set_absent(values, {{"model.vocab_size", 50432},
                      {"model.hidden_size", 6144},
                      {"model.intermediate_size", 24576},
                      {"model.num_hidden_layers", 44},
                      {"model.num_attention_heads", 64},
                      {"model.max_position_embeddings", 2048},
                      {"model.hidden_act", "gelu"},
                      {"model.layer_norm_eps", 1e-5},
                      {"model.use_parallel_residual", true},
                      {"model.tie_word_embeddings", false},
                      {"model.attention_bias", true},
                      {"model.attention_dropout", 0.0},
                      {"model.hidden_dropout", 0.0},
                      {"model.initializer_range", 0.02}});
  for (const auto& number : kGptNeoXRope) want_equal_beside(config, number, values);
  return values;
}

void write_gpt_neox(const Values& values, std::string_view architecture, Json& config) {
  config["architectures"] = Json::Array{Json(architecture)};
  config["model_type"] = "gpt_neox";
  write_members(config, values, spec::gpt_neox());
  if (given(config, "rope_parameters") != nullptr) {
    for (const auto& number : kGptNeoXRope) {
      if (const auto* value = values.find(number.row)) write_member(config["rope_parameters"], number.member, *value);
    }
  }
  write_absent_ids(config, {"bos_token_id", "eos_token_id"});
}

/// Old files hold the causal mask and the frequencies of each layer.
bool may_ignore_in_gpt_neox(std::string_view in_file, const Values& model) {
  return in_file.ends_with(".attention.bias") || in_file.ends_with(".attention.masked_bias") ||
         in_file.ends_with(".rotary_emb.inv_freq") ||
         (in_file == "embed_out.weight" && model.flag("model.tie_word_embeddings"));
}

std::string gpt_neox_equal_to(std::string_view in_file, const Values& model) {
  return in_file == "embed_out.weight" && model.flag("model.tie_word_embeddings") ? "gpt_neox.embed_in.weight" : "";
}

}  // namespace

const Family& gpt_neox_family() {
  static const Family row{
      .name = "gpt_neox",
      .table = spec::gpt_neox(),
      .architectures = kGptNeoXArchitectures,
      .read = read_gpt_neox,
      .write = write_gpt_neox,
      .names = {.base = "gpt_neox.", .may_ignore = may_ignore_in_gpt_neox, .equal_to = gpt_neox_equal_to},
      .token_embedding = "gpt_neox.embed_in.weight",
      .lora_layers = "query_key_value",
      .draw = draw_by_initializer_range,
      .layers_above =
          [](const Values& values, const std::string& parameter) {
            return layers_above_blocks(values, parameter, "gpt_neox.layers.", "gpt_neox.embed_in.");
          },
      .make_causal = [](const Values& values) -> std::shared_ptr<CausalModel> {
        return std::make_shared<GptNeoXForCausalLm>(spec::bind<spec::GptNeoX>(spec::gpt_neox(), values));
      }};
  return row;
}

}  // namespace worker
