#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/family.h"
#include "worker/models/t5/t5_model.h"

namespace worker {
namespace {

using fsdp::Json;
using spec::Values;

/// T5WithLMHeadModel is the old name of the first, which the files of T5 still have.
constexpr auto kT5Architectures = std::to_array<std::string_view>({kT5Architecture, "T5WithLMHeadModel", "T5Model"});

constexpr std::string_view kT5Embedding = "shared.weight";

/// Members of config.json beside the rows; see [Note: members of configuration files].
constexpr auto kT5Read = std::to_array<std::string_view>({"dense_act_fn", "is_gated_act"});
constexpr auto kT5Only = std::to_array<OnlyValue>({{"is_encoder_decoder", "true"}, {"is_decoder", "false"}});
constexpr auto kT5NoEffect =
    std::to_array<std::string_view>({"n_positions", "classifier_dropout", "cross_attention_hidden_size"});

constexpr auto kT5Nullable =
    std::to_array<std::string_view>({"num_decoder_layers", "decoder_start_token_id", "is_gated_act"});

constexpr std::string_view kT5Head = "lm_head.weight";
constexpr const char *kT5Scaled = "scale_decoder_outputs", *kT5Start = "decoder_start_token_id";

spec::T5 t5_of(const Values& values) {
  return spec::bind<spec::T5>(spec::t5(), values);
}

Values read_t5(const Json& config) {
  want_family(config, "t5", kT5Architectures);
  check_config(config, spec::t5(), {kT5Read, kT5Only, kT5NoEffect, kT5Nullable});
  Values values = values_of_config(spec::t5(), config);
  set_absent(values, {{"model.vocab_size", 32128},
                      {"model.d_model", 512},
                      {"model.d_kv", 64},
                      {"model.d_ff", 2048},
                      {"model.num_layers", 6}});
  set_absent(values, "model.num_decoder_layers", values.whole("model.num_layers"));
  set_absent(values, {{"model.num_heads", 8},
                      {"model.relative_attention_num_buckets", 32},
                      {"model.relative_attention_max_distance", 128},
                      {"model.dropout_rate", 0.1},
                      {"model.layer_norm_epsilon", 1e-6},
                      {"model.initializer_factor", 1.0},
                      {"model.feed_forward_proj", "relu"},
                      {"model.tie_word_embeddings", true}});
  if (!values.flag("model.tie_word_embeddings")) want_member(config, kT5Scaled, false);
  set_absent(values, {{"model.scale_decoder_outputs", true}, {"model.pad_token_id", 0}, {"model.eos_token_id", 1}});
  set_absent(values, "model.decoder_start_token_id", values.whole("model.pad_token_id"));
  // transformers writes what follows from feed_forward_proj beside it, and then reads that.
  const spec::T5 model = t5_of(values);
  want_member(config, "dense_act_fn", model.activation());
  if (const Json* gated = config.find("is_gated_act"); gated != nullptr) {
    Json said;
    said["is_gated_act"] = gated->is_null() ? Json(false) : *gated;  // null is false for every transformers
    want_member(said, "is_gated_act", model.is_gated());
  }
  return values;
}

/// A T5 with a head of its own that transformers 5 has saved says tie_word_embeddings = true, and in
/// scale_decoder_outputs what tie_word_embeddings meant before. So the files tell whether the head is shared.
void complete_t5(const ModelFiles& files, Values& values) {
  if (values.flag("model.tie_word_embeddings") && !values.flag("model.scale_decoder_outputs") && files.has(kT5Head))
    values.set("model.tie_word_embeddings", false);
  const Json *of_config = given(files.config, kT5Start), *of_generation = given(files.generation, kT5Start);
  if (of_generation == nullptr) return;
  if (of_config != nullptr && !(*of_config == *of_generation)) {
    throw std::invalid_argument(std::string(kGenerationConfigFile) + " has " + kT5Start + " = " +
                                of_generation->dump() + ", and " + kModelConfigFile + " has " + of_config->dump() +
                                ", with which the model is trained; make them equal");
  }
  set_row(values, spec::t5(), "model.decoder_start_token_id", *of_generation,
          std::string(kGenerationConfigFile) + "'s " + kT5Start);
}

/// transformers 4 knows tie_word_embeddings alone, and transformers 5 takes it for scale_decoder_outputs where the file
/// lacks that.
void write_t5_head(const spec::T5& model, Json& config) {
  const bool differs = model.tie_word_embeddings && !model.scale_decoder_outputs;
  if (differs || config.contains(kT5Scaled)) config[kT5Scaled] = model.scales_head();
}

void write_t5(const Values& values, std::string_view architecture, Json& config) {
  config["architectures"] = Json::Array{Json(architecture)};
  config["model_type"] = "t5";
  config["is_encoder_decoder"] = true;
  write_members(config, values, spec::t5(), {"model.scale_decoder_outputs"});
  const spec::T5 model = t5_of(values);
  if (config.contains("dense_act_fn")) config["dense_act_fn"] = model.activation();
  if (config.contains("is_gated_act")) config["is_gated_act"] = model.is_gated();
  write_t5_head(model, config);
}

bool is_t5_embedding(std::string_view in_file) {
  return in_file == "encoder.embed_tokens.weight" || in_file == "decoder.embed_tokens.weight";
}

/// Both stacks have the one table, and files may hold it under any of three names.
std::string t5_parameter_of(std::string_view in_file) {
  return is_t5_embedding(in_file) ? std::string(kT5Embedding) : std::string(in_file);
}

/// Old files hold a bias of the cross-attention that no model reads.
bool may_ignore_in_t5(std::string_view in_file, const Values& model) {
  return is_t5_embedding(in_file) ||
         in_file == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight" ||
         (in_file == kT5Head && model.flag("model.tie_word_embeddings"));
}

std::string t5_equal_to(std::string_view in_file, const Values& model) {
  return is_t5_embedding(in_file) || (in_file == kT5Head && model.flag("model.tie_word_embeddings"))
             ? std::string(kT5Embedding)
             : std::string();
}

/// The standard deviation of the first values of a matrix, for initializer_factor 1, as in transformers, which has it
/// from Mesh TensorFlow.
double t5_deviation(const spec::T5& model, std::string_view name) {
  const auto inverse_root = [](std::int64_t size) { return std::pow(static_cast<double>(size), -0.5); };
  if (name == kT5Embedding || name == kT5Head) return 1;
  if (name.ends_with(".q.weight")) return inverse_root(model.d_model * model.d_kv);
  if (name.ends_with(".o.weight")) return inverse_root(model.inner_size());
  if (name.ends_with(".wo.weight")) return inverse_root(model.d_ff);
  return inverse_root(model.d_model);
}

void draw_t5(const Values& values, const std::string& name, const at::Tensor& into, at::Generator& random) {
  const spec::T5 model = t5_of(values);
  if (name.ends_with("norm.weight")) {
    into.fill_(model.initializer_factor);
  } else {
    into.normal_(0.0, model.initializer_factor * t5_deviation(model, name), random);
  }
}

/// The encoder lies below the whole decoder.
int t5_layers_above(const Values& values, const std::string& parameter) {
  static constexpr std::string_view kEncoder = "encoder.block.", kDecoder = "decoder.block.";
  const auto encoder = static_cast<int>(values.whole("model.num_layers"));
  const auto decoder = static_cast<int>(values.whole("model.num_decoder_layers"));
  if (parameter.starts_with(kDecoder)) return decoder - std::stoi(parameter.substr(kDecoder.size()));
  if (parameter.starts_with(kEncoder)) return decoder + encoder - std::stoi(parameter.substr(kEncoder.size()));
  if (parameter.starts_with("encoder.")) return decoder;
  return parameter.starts_with("shared.") ? decoder + encoder + 1 : 0;
}

}  // namespace

bool is_wide_in_t5(std::string_view parameter) {
  return parameter.ends_with(".wo.weight");
}

const Family& t5_family() {
  static const Family row{
      .name = "t5",
      .table = spec::t5(),
      .architectures = kT5Architectures,
      .read = read_t5,
      .complete = complete_t5,
      .write = write_t5,
      .names = {.parameter_of = t5_parameter_of, .may_ignore = may_ignore_in_t5, .equal_to = t5_equal_to},
      .token_embedding = kT5Embedding,
      .draw = draw_t5,
      .layers_above = t5_layers_above};
  return row;
}

}  // namespace worker
