#include <array>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "worker/models/bert/bert_model.h"
#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/family.h"

namespace worker {
namespace {

using fsdp::Json;
using spec::Values;

/// The most labels that a config.json may name. It keeps a hostile file from filling the memory.
constexpr std::int64_t kMostBertLabels = 1 << 20;

constexpr const char* kBertProblem = "single_label_classification";
constexpr std::string_view kBertBase = "bert.";

constexpr auto kBertArchitectures =
    std::to_array<std::string_view>({kBertForMaskedLm, kBertClassifier, "BertForPreTraining", "BertModel"});

/// Members of config.json beside the rows; see [Note: members of configuration files]. bert_labels() reads the labels.
constexpr auto kBertOnly = std::to_array<OnlyValue>({{"position_embedding_type", "\"absolute\""},
                                                     {"is_decoder", "false"},
                                                     {"is_encoder_decoder", "false"},
                                                     {"problem_type", "\"single_label_classification\""}});
constexpr auto kBertNoEffect = std::to_array<std::string_view>(
    {"cross_attention_hidden_size", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
     "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"});

constexpr auto kBertNullable = std::to_array<std::string_view>({"classifier_dropout", "pad_token_id", "problem_type"});

Values read_bert(const Json& config) {
  want_family(config, "bert", kBertArchitectures);
  check_config(config, spec::bert(), {{}, kBertOnly, kBertNoEffect, kBertNullable});
  Values values = values_of_config(spec::bert(), config);
  set_absent(values, {{"model.vocab_size", 30522},
                      {"model.hidden_size", 768},
                      {"model.intermediate_size", 3072},
                      {"model.num_hidden_layers", 12},
                      {"model.num_attention_heads", 12},
                      {"model.max_position_embeddings", 512},
                      {"model.type_vocab_size", 2},
                      {"model.hidden_act", "gelu"},
                      {"model.hidden_dropout_prob", 0.1},
                      {"model.attention_probs_dropout_prob", 0.1}});
  set_absent(values, "model.classifier_dropout", values.real("model.hidden_dropout_prob"));
  set_absent(values, {{"model.layer_norm_eps", 1e-12},
                      {"model.initializer_range", 0.02},
                      {"model.pad_token_id", 0},
                      {"model.tie_word_embeddings", true}});
  return values;
}

void write_bert(const Values& values, std::string_view architecture, Json& config) {
  config["architectures"] = Json::Array{Json(architecture)};
  config["model_type"] = "bert";
  write_members(config, values, spec::bert());
}

/// Files of TensorFlow's days name the norms' values gamma and beta. The decoder's bias has two names in transformers.
std::string bert_parameter(std::string_view in_file) {
  std::string name(in_file);
  const auto replace_end = [&name](std::string_view end, std::string_view by) {
    if (name.ends_with(end)) name.replace(name.size() - end.size(), end.size(), by);
  };
  replace_end(".gamma", ".weight");
  replace_end(".beta", ".bias");
  replace_end("predictions.decoder.bias", "predictions.bias");
  return name;
}

constexpr std::string_view kBertBias = "cls.predictions.bias", kBertDecoderBias = "cls.predictions.decoder.bias";

/// Tied weights have two names in files.
std::string bert_equal_to(std::string_view in_file, const Values& model) {
  if (!model.flag("model.tie_word_embeddings")) return {};
  if (in_file == "cls.predictions.decoder.weight") return "bert.embeddings.word_embeddings.weight";
  return in_file == kBertDecoderBias ? std::string(kBertBias) : std::string();
}

/// transformers 5 has two biases where the weights are not tied, and adds the decoder's.
std::string bert_replaced_by(std::string_view in_file, const Values& model) {
  const bool has_two = in_file == kBertBias && !model.flag("model.tie_word_embeddings");
  return has_two ? std::string(kBertDecoderBias) : std::string();
}

/// A model takes the heads that it has, and leaves the others.
bool may_ignore_in_bert(std::string_view in_file, const Values& /*model*/) {
  const std::string_view plain = in_file.starts_with(kBertBase) ? in_file.substr(kBertBase.size()) : in_file;
  return plain.starts_with("cls.") || plain.starts_with("classifier.") || plain.starts_with("pooler.") ||
         plain == "embeddings.position_ids";
}

bool bert_may_lack(std::string_view parameter) {
  return parameter.starts_with("cls.") || parameter.starts_with("classifier.") || parameter.starts_with("bert.pooler.");
}

std::vector<std::string> numbered_bert_labels(std::int64_t count) {
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < count; ++i) labels.push_back("LABEL_" + std::to_string(i));
  return labels;
}

std::invalid_argument bert_label_error(const std::string& member, const Json& found, const char* want) {
  return std::invalid_argument(std::string(kModelConfigFile) + "'s " + member + " = " + found.dump() + ": want " +
                               want + "; repair the file");
}

}  // namespace

std::vector<std::string> second_bert_names(const std::string& parameter) {
  if (parameter != kBertBias) return {};
  return {std::string(kBertDecoderBias)};
}

std::vector<std::string> bert_labels(const Json& config) {
  const Json* names = given(config, "id2label");
  if (names == nullptr) {
    const Json* count = given(config, "num_labels");
    if (count == nullptr) return numbered_bert_labels(2);
    if (!count->is_int() || count->as_int() < 1 || count->as_int() > kMostBertLabels) {
      throw bert_label_error("num_labels", *count, "a whole number from 1 to 1048576");
    }
    return numbered_bert_labels(count->as_int());
  }
  if (!names->is_object() || names->size() == 0)
    throw bert_label_error("id2label", *names, "an object of names by number");
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < names->size(); ++i) {
    const std::string number = std::to_string(i);
    const Json* name = names->find(number);
    if (name == nullptr) {
      throw std::invalid_argument(std::string(kModelConfigFile) + "'s id2label has " + std::to_string(names->size()) +
                                  " names and lacks number " + number + ": want 0, 1, ..; repair the file");
    }
    if (!name->is_string()) throw bert_label_error("id2label." + number, *name, "a text");
    labels.push_back(name->as_string());
  }
  return labels;
}

void write_bert_labels(std::span<const std::string> labels, Json& config) {
  Json::Object names, numbers;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    names[std::to_string(i)] = labels[i];
    const auto [before, is_new] = numbers.emplace(labels[i], static_cast<std::int64_t>(i));
    if (is_new) continue;
    throw std::invalid_argument("the label \"" + labels[i] + "\" has the numbers " + before->second.dump() + " and " +
                                std::to_string(i) + ": want another text for each; rename one in the data");
  }
  if (config.contains("num_labels")) config["num_labels"] = static_cast<std::int64_t>(labels.size());
  config["id2label"] = std::move(names);
  config["label2id"] = std::move(numbers);
  config["problem_type"] = kBertProblem;
}

const Family& bert_family() {
  static const Family row{.name = "bert",
                          .table = spec::bert(),
                          .architectures = kBertArchitectures,
                          .read = read_bert,
                          .write = write_bert,
                          .names = {.base = kBertBase,
                                    .parameter_of = bert_parameter,
                                    .may_ignore = may_ignore_in_bert,
                                    .may_lack = bert_may_lack,
                                    .equal_to = bert_equal_to,
                                    .replaced_by = bert_replaced_by},
                          .token_embedding = "bert.embeddings.word_embeddings.weight",
                          .draw = draw_by_initializer_range,
                          .layers_above = [](const Values& values, const std::string& parameter) {
                            return layers_above_blocks(values, parameter, "bert.encoder.layer.", "bert.embeddings.");
                          }};
  return row;
}

}  // namespace worker
