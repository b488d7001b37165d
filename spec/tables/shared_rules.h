#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "spec/limits.h"
#include "spec/table.h"

namespace spec {

// Rules that several tables share.

/// Adds a contradiction.
void add_conflict(std::vector<Conflict>& conflicts, std::string_view key, std::string want, std::string remedy = "",
                  std::initializer_list<std::string_view> related = {});

/// Sets the value of a key that has none.
void set_default(Values& values, std::string_view name, Value value);

/// Adds a contradiction if this key says fp16, and train.precision does not.
void want_scaled_loss(const Values& values, std::string_view key, std::vector<Conflict>& conflicts);

// Rules that several families of models share.

/// Without a model.max_position_embeddings the longest sequence is `usual`, or the data's if that is longer.
void derive_positions(Values& values, std::int64_t usual);

/// Adds a contradiction if the data's rows are longer than the model's longest sequence.
void want_positions(const Values& values, std::vector<Conflict>& conflicts);

/// Adds a contradiction if the results of attention are to be kept, which a family whose attention has masks of its own
/// always computes again.
void want_no_kept_attention(const Values& values, std::vector<Conflict>& conflicts);

/// Adds a contradiction if the heads do not share the width evenly. Returns whether they do. `heads` is above 0.
bool want_even_heads(std::int64_t hidden, std::int64_t heads, std::vector<Conflict>& conflicts);

// Rows that several families have.
namespace row {

constexpr Key vocab_size(Assign assign) {
  return whole("model.vocab_size", derived("what the data needs"), {2, kMostSize}, "Size of the vocabulary.", assign);
}
constexpr Key hidden_size(Default value, Assign assign) {
  return whole("model.hidden_size", value, {1, kMostSize}, "Width of the model; a multiple of num_attention_heads.",
               assign);
}
constexpr Key intermediate_size(Default value, Assign assign) {
  return whole("model.intermediate_size", value, {1, kMostSize}, "Width inside the feed-forward blocks.", assign);
}
constexpr Key num_hidden_layers(Default value, Assign assign) {
  return whole("model.num_hidden_layers", value, {1, 10'000}, "Number of transformer blocks.", assign);
}
constexpr Key num_attention_heads(Default value, Assign assign) {
  return whole("model.num_attention_heads", value, {1, kMostSize}, "Number of attention heads.", assign);
}
constexpr Key hidden_act(Assign assign) {
  return choice("model.hidden_act", "gelu", "gelu gelu_new gelu_pytorch_tanh relu silu",
                "The nonlinear function of the feed-forward blocks; gelu_new and gelu_pytorch_tanh are GELU by tanh.",
                assign);
}
constexpr Key norm_eps(std::string_view name, Default value, Assign assign) {
  return real(name, value, above(0, 0.1), "Keeps the norm from dividing by zero.", assign);
}
constexpr Key attention_dropout(std::string_view name, Default value, Assign assign) {
  return real(name, value, {0, 0.99}, "Share of the attention's probabilities that training sets to zero.", assign);
}
constexpr Key hidden_dropout(std::string_view name, Default value, Assign assign) {
  return real(name, value, {0, 0.99}, "Share of the embedding's and the blocks' outputs that training sets to zero.",
              assign);
}
constexpr Key initializer_range(Assign assign) {
  return real("model.initializer_range", "0.02", above(0, 1), "Standard deviation of the initial weights.", assign);
}
constexpr Key tie_word_embeddings(Default value, Assign assign) {
  return flag("model.tie_word_embeddings", value, "Whether input and output embeddings share one table.", assign);
}
constexpr Key pretrained(Assign assign) {
  return path("model.pretrained", kPretrainedMeaning, assign);
}

}  // namespace row

}  // namespace spec
