#include "spec/tables/llama_keys.h"

#include <array>

#include "spec/limits.h"
#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr std::int64_t kPositions = 2048;

constexpr auto kKeys = std::to_array<Key>({
    row::vocab_size(into<&Llama::vocab_size>),
    row::whole("model.hidden_size", "256", {1, kMostSize},
               "Width of the model. Without head_dim, hidden_size / num_attention_heads is a whole, even number.",
               into<&Llama::hidden_size>),
    row::intermediate_size("688", into<&Llama::intermediate_size>),
    row::num_hidden_layers("4", into<&Llama::num_hidden_layers>),
    row::whole("model.num_attention_heads", "4", {1, kMostSize}, "Number of query heads.",
               into<&Llama::num_attention_heads>),
    row::whole("model.num_key_value_heads", derived("num_attention_heads"), {1, kMostSize},
               "Number of key and value heads; divides num_attention_heads.", into<&Llama::num_key_value_heads>),
    row::whole("model.head_dim", derived("hidden_size / num_attention_heads"), {2, kMostSize},
               "Width of each head of queries, keys and values; even.", into<&Llama::head_dim>),
    row::whole("model.max_position_embeddings", derived("2048, or data.sequence_length if that is longer"),
               {1, kMostSize}, "Longest sequence that the model takes.", into<&Llama::max_position_embeddings>,
               "tokens"),
    row::real("model.rope_theta", "10000", above(0, 1e12), "Base of the rotary embedding.", into<&Llama::rope_theta>),
    row::choice(
        "model.rope_type", "default", "default linear llama3",
        "How the rotary embedding is scaled: not at all, all frequencies divided by rope_factor, or as Llama 3.1 "
        "does it.",
        into<&Llama::rope_type>),
    row::real("model.rope_factor", derived("8, with rope_type linear or llama3"), {1, 1e6},
              "By how much the rotary embedding is stretched.", into<&Llama::rope_factor>),
    row::real("model.rope_low_freq_factor", derived("1, with rope_type llama3"), above(0, 1e6),
              "Wavelengths above rope_original_max_position_embeddings / this are stretched by rope_factor.",
              into<&Llama::rope_low_freq_factor>),
    row::real("model.rope_high_freq_factor", derived("4, with rope_type llama3"), above(0, 1e6),
              "Wavelengths below rope_original_max_position_embeddings / this are not stretched.",
              into<&Llama::rope_high_freq_factor>),
    row::whole("model.rope_original_max_position_embeddings", derived("8192, with rope_type llama3"), {1, kMostSize},
               "Longest sequence before the stretching.", into<&Llama::rope_original_max_position_embeddings>,
               "tokens"),
    row::norm_eps("model.rms_norm_eps", "1e-5", into<&Llama::rms_norm_eps>),
    row::tie_word_embeddings("false", into<&Llama::tie_word_embeddings>),
    row::flag("model.attention_bias", "false", "Whether the projections of the attention have biases.",
              into<&Llama::attention_bias>),
    row::flag("model.mlp_bias", "false", "Whether the feed-forward blocks have biases.", into<&Llama::mlp_bias>),
    row::attention_dropout("model.attention_dropout", "0", into<&Llama::attention_dropout>),
    row::initializer_range(into<&Llama::initializer_range>),
    row::pretrained(into<&Llama::pretrained>),
});

/// Fills in the values of Llama 3.1, for the types of rope that read them. Exports and checkpoints write the rows, so a
/// default that stood in the struct alone would be lost.
void derive_scaling(Values& values) {
  const auto type = values.text("model.rope_type");
  const Llama usual;
  if (type == "linear" || type == "llama3") set_default(values, "model.rope_factor", usual.rope_factor);
  if (type != "llama3") return;
  set_default(values, "model.rope_low_freq_factor", usual.rope_low_freq_factor);
  set_default(values, "model.rope_high_freq_factor", usual.rope_high_freq_factor);
  set_default(values, "model.rope_original_max_position_embeddings", usual.rope_original_max_position_embeddings);
}

void derive(Values& values, std::uint64_t /*ranks*/) {
  set_default(values, "model.num_key_value_heads", values.whole("model.num_attention_heads"));
  derive_positions(values, kPositions);
  derive_scaling(values);
}

/// Keys without effect are mistakes.
void check_scaling(const Values& values, std::vector<Conflict>& conflicts) {
  const auto type = values.text("model.rope_type");
  const auto only_with = [&](const char* key, bool has_effect, const char* types) {
    if (has_effect || !values.has(key)) return;
    add_conflict(conflicts, key, std::string("has no effect without model.rope_type = ") + types,
                 "remove it, or set rope_type", {"model.rope_type"});
  };
  only_with("model.rope_factor", type == "linear" || type == "llama3", "linear or llama3");
  for (const char* key :
       {"model.rope_low_freq_factor", "model.rope_high_freq_factor", "model.rope_original_max_position_embeddings"}) {
    only_with(key, type == "llama3", "llama3");
  }
}

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  auto found = conflicts_of(bind<Llama>(llama(), values));
  conflicts.insert(conflicts.end(), found.begin(), found.end());
  check_scaling(values, conflicts);
  want_positions(values, conflicts);
}

}  // namespace

const Table& llama() {
  static const Table table{"llama", kKeys, derive, check};
  return table;
}

std::vector<Conflict> conflicts_of(const Llama& model) {
  std::vector<Conflict> conflicts;
  const auto hidden = model.hidden_size, heads = model.num_attention_heads, pairs = model.num_key_value_heads;
  if (heads <= 0) return conflicts;
  // The next check refuses an odd width per head. So the advice is a width that passes both checks.
  if (model.head_dim > 0) {
    if (model.head_dim % 2 != 0) {
      add_conflict(conflicts, "model.head_dim", "want an even width per head for the rotary embedding",
                   multiples_near(model.head_dim, 2));
    }
  } else if (hidden % heads != 0) {
    add_conflict(conflicts, "model.hidden_size", "want a multiple of num_attention_heads = " + std::to_string(heads),
                 multiples_near(hidden, 2 * heads), {"model.num_attention_heads"});
  } else if (hidden / heads % 2 != 0) {
    add_conflict(conflicts, "model.hidden_size",
                 "want an even width per head for the rotary embedding, not hidden_size / heads = " +
                     std::to_string(hidden / heads),
                 multiples_near(hidden, 2 * heads), {"model.num_attention_heads"});
  }
  if (pairs > 0 && heads % pairs != 0) {
    add_conflict(conflicts, "model.num_key_value_heads",
                 "want a divisor of num_attention_heads = " + std::to_string(heads),
                 "leave it out for one per query head", {"model.num_attention_heads"});
  }
  if (model.rope_type == RopeScaling::kLlama3 && model.rope_low_freq_factor >= model.rope_high_freq_factor) {
    add_conflict(conflicts, "model.rope_low_freq_factor", "want less than model.rope_high_freq_factor",
                 "Llama 3.1 has 1 and 4", {"model.rope_high_freq_factor"});
  }
  return conflicts;
}

}  // namespace spec
