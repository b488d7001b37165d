#include "spec/tables/gpt_neox_keys.h"

#include <array>

#include "spec/limits.h"
#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr std::int64_t kGptNeoXPositions = 2048;

constexpr auto kGptNeoXKeys = std::to_array<Key>({
    row::vocab_size(into<&GptNeoX::vocab_size>),
    row::hidden_size("256", into<&GptNeoX::hidden_size>),
    row::intermediate_size("1024", into<&GptNeoX::intermediate_size>),
    row::num_hidden_layers("4", into<&GptNeoX::num_hidden_layers>),
    row::num_attention_heads("4", into<&GptNeoX::num_attention_heads>),
    row::whole("model.max_position_embeddings", derived("2048, or data.sequence_length if that is longer"),
               {1, kMostSize}, "Longest sequence that the model takes.", into<&GptNeoX::max_position_embeddings>,
               "tokens"),
    row::hidden_act(into<&GptNeoX::hidden_act>),
    row::real("model.rotary_pct", "0.25", above(0, 1),
              "Share of each head's elements that the rotary embedding turns; an even number of them.",
              into<&GptNeoX::rotary_pct>),
    row::real("model.rotary_emb_base", "10000", above(0, 1e12), "Base of the rotary embedding.",
              into<&GptNeoX::rotary_emb_base>),
    row::norm_eps("model.layer_norm_eps", "1e-5", into<&GptNeoX::layer_norm_eps>),
    row::flag("model.use_parallel_residual", "true",
              "Whether attention and feed-forward block read the same input, and both are added to it.",
              into<&GptNeoX::use_parallel_residual>),
    row::tie_word_embeddings("false", into<&GptNeoX::tie_word_embeddings>),
    row::flag("model.attention_bias", "true", "Whether the projections of the attention have biases.",
              into<&GptNeoX::attention_bias>),
    row::attention_dropout("model.attention_dropout", "0", into<&GptNeoX::attention_dropout>),
    row::hidden_dropout("model.hidden_dropout", "0", into<&GptNeoX::hidden_dropout>),
    row::initializer_range(into<&GptNeoX::initializer_range>),
    row::pretrained(into<&GptNeoX::pretrained>),
});

void derive_gpt_neox(Values& values, std::uint64_t /*ranks*/) {
  derive_positions(values, kGptNeoXPositions);
}

void check_gpt_neox(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  auto found = conflicts_of(bind<GptNeoX>(gpt_neox(), values));
  conflicts.insert(conflicts.end(), found.begin(), found.end());
  want_positions(values, conflicts);
}

}  // namespace

const Table& gpt_neox() {
  static const Table table{"gpt_neox", kGptNeoXKeys, derive_gpt_neox, check_gpt_neox};
  return table;
}

std::vector<Conflict> conflicts_of(const GptNeoX& model) {
  std::vector<Conflict> conflicts;
  const auto hidden = model.hidden_size, heads = model.num_attention_heads;
  if (heads <= 0) return conflicts;
  if (!want_even_heads(hidden, heads, conflicts)) return conflicts;
  if (const auto turned = model.rotary_size(); turned < 2 || turned % 2 != 0) {
    add_conflict(conflicts, "model.rotary_pct",
                 "want an even number of rotated elements, not " + std::to_string(turned) + " of the " +
                     std::to_string(model.head_size()) + " of a head",
                 "1 turns all of them", {"model.hidden_size", "model.num_attention_heads"});
  }
  return conflicts;
}

}  // namespace spec
