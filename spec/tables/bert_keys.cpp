#include "spec/tables/bert_keys.h"

#include <array>

#include "spec/limits.h"
#include "spec/tables/model_rules.h"

namespace spec {
namespace {

constexpr std::int64_t kBertPositions = 512;

constexpr auto kBertKeys = std::to_array<Key>({
    {.name = "model.vocab_size",
     .kind = Kind::kWhole,
     .derived = "what the data needs",
     .low = 2,
     .high = kMostSize,
     .meaning = "Size of the vocabulary.",
     .assign = into<&Bert::vocab_size>},
    {.name = "model.hidden_size",
     .kind = Kind::kWhole,
     .standard = "256",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width of the model; a multiple of num_attention_heads.",
     .assign = into<&Bert::hidden_size>},
    {.name = "model.intermediate_size",
     .kind = Kind::kWhole,
     .standard = "1024",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width inside the feed-forward blocks.",
     .assign = into<&Bert::intermediate_size>},
    {.name = "model.num_hidden_layers",
     .kind = Kind::kWhole,
     .standard = "4",
     .low = 1,
     .high = 10'000,
     .meaning = "Number of transformer blocks.",
     .assign = into<&Bert::num_hidden_layers>},
    {.name = "model.num_attention_heads",
     .kind = Kind::kWhole,
     .standard = "4",
     .low = 1,
     .high = kMostSize,
     .meaning = "Number of attention heads.",
     .assign = into<&Bert::num_attention_heads>},
    {.name = "model.max_position_embeddings",
     .kind = Kind::kWhole,
     .derived = "512, or data.sequence_length if that is longer",
     .low = 1,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "Longest sequence that the model takes: rows of its table of positions.",
     .assign = into<&Bert::max_position_embeddings>},
    {.name = "model.type_vocab_size",
     .kind = Kind::kWhole,
     .standard = "2",
     .low = 1,
     .high = kMostSize,
     .meaning = "Number of token types. A text alone has type 0; of a pair the second text has type 1.",
     .assign = into<&Bert::type_vocab_size>},
    {.name = "model.hidden_act",
     .kind = Kind::kChoice,
     .standard = "gelu",
     .choices = "gelu gelu_new gelu_pytorch_tanh relu silu",
     .meaning = "The nonlinear function of the feed-forward blocks and of the head that predicts tokens; gelu_new and "
                "gelu_pytorch_tanh are GELU by tanh.",
     .assign = into<&Bert::hidden_act>},
    {.name = "model.hidden_dropout_prob",
     .kind = Kind::kReal,
     .standard = "0.1",
     .low = 0,
     .high = 0.99,
     .meaning = "Share of the embedding's and the blocks' outputs that training sets to zero.",
     .assign = into<&Bert::hidden_dropout_prob>},
    {.name = "model.attention_probs_dropout_prob",
     .kind = Kind::kReal,
     .standard = "0.1",
     .low = 0,
     .high = 0.99,
     .meaning = "Share of the attention's probabilities that training sets to zero.",
     .assign = into<&Bert::attention_probs_dropout_prob>},
    {.name = "model.classifier_dropout",
     .kind = Kind::kReal,
     .derived = "hidden_dropout_prob",
     .low = 0,
     .high = 0.99,
     .meaning = "Share of the classifier's inputs that training sets to zero.",
     .assign = into<&Bert::classifier_dropout>},
    {.name = "model.layer_norm_eps",
     .kind = Kind::kReal,
     .standard = "1e-12",
     .low = 0,
     .high = 0.1,
     .above_low = true,
     .meaning = "Keeps the norm from dividing by zero.",
     .assign = into<&Bert::layer_norm_eps>},
    {.name = "model.initializer_range",
     .kind = Kind::kReal,
     .standard = "0.02",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "Standard deviation of the initial weights.",
     .assign = into<&Bert::initializer_range>},
    {.name = "model.pad_token_id",
     .kind = Kind::kWhole,
     .standard = "0",
     .low = 0,
     .high = kMostSize,
     .meaning = "The token that fills rows up; less than vocab_size.",
     .assign = into<&Bert::pad_token_id>},
    {.name = "model.tie_word_embeddings",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether input and output embeddings share one table.",
     .assign = into<&Bert::tie_word_embeddings>},
    {.name = "model.pretrained", .kind = Kind::kPath, .meaning = kPretrainedMeaning, .assign = into<&Bert::pretrained>},
});

void derive_bert(Values& values, std::uint64_t /*ranks*/) {
  derive_positions(values, kBertPositions);
  if (!values.has("model.classifier_dropout")) {
    values.set("model.classifier_dropout", values.real("model.hidden_dropout_prob"));
  }
}

void check_bert(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  auto found = conflicts_of(bind<Bert>(bert(), values));
  conflicts.insert(conflicts.end(), found.begin(), found.end());
  want_positions(values, conflicts);
}

}  // namespace

const Table& bert() {
  static const Table table{"bert", kBertKeys, derive_bert, check_bert};
  return table;
}

std::vector<Conflict> conflicts_of(const Bert& model) {
  std::vector<Conflict> conflicts;
  if (model.num_attention_heads > 0) want_even_heads(model.hidden_size, model.num_attention_heads, conflicts);
  if (model.vocab_size > 0 && model.pad_token_id >= model.vocab_size) {
    conflicts.push_back({"model.pad_token_id",
                         "want less than vocab_size = " + std::to_string(model.vocab_size),
                         "take the tokenizer's padding token, which is 0 in BERT's own",
                         {"model.vocab_size"}});
  }
  return conflicts;
}

}  // namespace spec
