#include "opt/hf.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "opt/model.h"
#include "opt/table.h"
#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/ops.h"

namespace worker {
namespace {

using fsdp::Json;
using spec::Values;

constexpr auto kOptArchitectures = std::to_array<std::string_view>({"OPTForCausalLM", "OPTModel"});

/// Members of config.json beside the rows. One that no list has is refused.
constexpr auto kOptRead = std::to_array<std::string_view>({"word_embed_proj_dim"});
constexpr auto kOptOnly = std::to_array<OnlyValue>({{"do_layer_norm_before", "true"},
                                                    {"enable_bias", "true"},
                                                    {"layer_norm_elementwise_affine", "true"},
                                                    {"activation_function", "\"relu\""},
                                                    {"attention_dropout", "0"},
                                                    {"layerdrop", "0"},
                                                    {"tie_word_embeddings", "true"},
                                                    {"_remove_final_layer_norm", "false"},
                                                    {"is_encoder_decoder", "false"}});
constexpr auto kOptNoEffect = std::to_array<std::string_view>({"is_decoder", "cross_attention_hidden_size"});

Values read_opt(const Json& config) {
  want_family(config, "opt", kOptArchitectures);
  check_config(config, spec::opt(), {kOptRead, kOptOnly, kOptNoEffect});
  Values values = values_of_config(spec::opt(), config);
  set_absent(values, {{"model.vocab_size", 50272},
                      {"model.hidden_size", 768},
                      {"model.ffn_dim", 3072},
                      {"model.num_hidden_layers", 12},
                      {"model.num_attention_heads", 12},
                      {"model.max_position_embeddings", 2048},
                      {"model.dropout", 0.1},
                      {"model.init_std", 0.02}});
  want_member(config, "word_embed_proj_dim", values.whole("model.hidden_size"));
  return values;
}

void write_opt(const Values& values, std::string_view architecture, Json& config) {
  config["architectures"] = Json::Array{Json(architecture)};
  config["model_type"] = "opt";
  write_members(config, values, spec::opt());
  // transformers would take ids of its own tokenizer for tokens that are absent here.
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!config.contains(token)) config[token] = nullptr;
  }
}

int opt_layers_above(const Values& values, const std::string& parameter) {
  static constexpr std::string_view kLayers = "model.decoder.layers.";
  const auto layers = static_cast<int>(values.whole("model.num_hidden_layers"));
  if (parameter.starts_with(kLayers)) return layers - std::stoi(parameter.substr(kLayers.size()));
  return parameter.starts_with("model.decoder.embed_") ? layers + 1 : 0;
}

}  // namespace

const Family& opt_family() {
  static const Family row{
      .name = "opt",
      .table = spec::opt(),
      .architectures = kOptArchitectures,
      .read = read_opt,
      .write = write_opt,
      .names = {.base = "model.",
                .parameter_of = same_name,
                .may_ignore = [](std::string_view in_file, const Values&) { return in_file == "lm_head.weight"; },
                .may_lack = [](std::string_view) { return false; }},
      .token_embedding = "model.decoder.embed_tokens.weight",
      .lora_layers = "q_proj v_proj",
      .draw = [](const Values& values, const std::string& name, const at::Tensor& into,
                 at::Generator& random) { draw_normal(name, into, values.real("model.init_std"), random); },
      .layers_above = opt_layers_above,
      .make_causal = [](const Values& values) -> std::shared_ptr<CausalModel> {
        return std::make_shared<OptForCausalLm>(spec::bind<spec::Opt>(spec::opt(), values));
      }};
  return row;
}

}  // namespace worker
