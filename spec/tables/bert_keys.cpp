#include "spec/tables/bert_keys.h"

#include <array>

#include "spec/limits.h"
#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr std::int64_t kBertPositions = 512;

constexpr auto kBertKeys = std::to_array<Key>({
    row::vocab_size(into<&Bert::vocab_size>),
    row::hidden_size("256", into<&Bert::hidden_size>),
    row::intermediate_size("1024", into<&Bert::intermediate_size>),
    row::num_hidden_layers("4", into<&Bert::num_hidden_layers>),
    row::num_attention_heads("4", into<&Bert::num_attention_heads>),
    row::whole("model.max_position_embeddings", derived("512, or data.sequence_length if that is longer"),
               {1, kMostSize}, "Longest sequence that the model takes: rows of its table of positions.",
               into<&Bert::max_position_embeddings>, "tokens"),
    row::whole("model.type_vocab_size", "2", {1, kMostSize},
               "Number of token types. A text alone has type 0; of a pair the second text has type 1.",
               into<&Bert::type_vocab_size>),
    row::choice("model.hidden_act", "gelu", "gelu gelu_new gelu_pytorch_tanh relu silu",
                "The nonlinear function of the feed-forward blocks and of the head that predicts tokens; gelu_new and "
                "gelu_pytorch_tanh are GELU by tanh.",
                into<&Bert::hidden_act>),
    row::hidden_dropout("model.hidden_dropout_prob", "0.1", into<&Bert::hidden_dropout_prob>),
    row::attention_dropout("model.attention_probs_dropout_prob", "0.1", into<&Bert::attention_probs_dropout_prob>),
    row::real("model.classifier_dropout", derived("hidden_dropout_prob"), {0, 0.99},
              "Share of the classifier's inputs that training sets to zero.", into<&Bert::classifier_dropout>),
    row::norm_eps("model.layer_norm_eps", "1e-12", into<&Bert::layer_norm_eps>),
    row::initializer_range(into<&Bert::initializer_range>),
    row::whole("model.pad_token_id", "0", {0, kMostSize}, "The token that fills rows up; less than vocab_size.",
               into<&Bert::pad_token_id>),
    row::tie_word_embeddings("true", into<&Bert::tie_word_embeddings>),
    row::pretrained(into<&Bert::pretrained>),
});

void derive_bert(Values& values, std::uint64_t /*ranks*/) {
  derive_positions(values, kBertPositions);
  set_default(values, "model.classifier_dropout", values.real("model.hidden_dropout_prob"));
}

void check_bert(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  auto found = conflicts_of(bind<Bert>(bert(), values));
  conflicts.insert(conflicts.end(), found.begin(), found.end());
  want_positions(values, conflicts);
  want_no_kept_attention(values, conflicts);
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
    add_conflict(conflicts, "model.pad_token_id", "want less than vocab_size = " + std::to_string(model.vocab_size),
                 "take the tokenizer's padding token, which is 0 in BERT's own", {"model.vocab_size"});
  }
  return conflicts;
}

}  // namespace spec
