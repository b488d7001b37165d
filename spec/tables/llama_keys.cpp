#include "spec/tables/llama_keys.h"

#include <array>
#include <utility>

#include "spec/limits.h"
#include "spec/tables/model_rules.h"

namespace spec {
namespace {

constexpr std::int64_t kPositions = 2048;

constexpr auto kKeys = std::to_array<Key>({
    {.name = "model.vocab_size",
     .kind = Kind::kWhole,
     .derived = "what the data needs",
     .low = 2,
     .high = kMostSize,
     .meaning = "Size of the vocabulary.",
     .assign = into<&Llama::vocab_size>},
    {.name = "model.hidden_size",
     .kind = Kind::kWhole,
     .standard = "256",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width of the model. Without head_dim, hidden_size / num_attention_heads is a whole, even number.",
     .assign = into<&Llama::hidden_size>},
    {.name = "model.intermediate_size",
     .kind = Kind::kWhole,
     .standard = "688",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width inside the feed-forward blocks.",
     .assign = into<&Llama::intermediate_size>},
    {.name = "model.num_hidden_layers",
     .kind = Kind::kWhole,
     .standard = "4",
     .low = 1,
     .high = 10'000,
     .meaning = "Number of transformer blocks.",
     .assign = into<&Llama::num_hidden_layers>},
    {.name = "model.num_attention_heads",
     .kind = Kind::kWhole,
     .standard = "4",
     .low = 1,
     .high = kMostSize,
     .meaning = "Number of query heads.",
     .assign = into<&Llama::num_attention_heads>},
    {.name = "model.num_key_value_heads",
     .kind = Kind::kWhole,
     .derived = "num_attention_heads",
     .low = 1,
     .high = kMostSize,
     .meaning = "Number of key and value heads; divides num_attention_heads.",
     .assign = into<&Llama::num_key_value_heads>},
    {.name = "model.head_dim",
     .kind = Kind::kWhole,
     .derived = "hidden_size / num_attention_heads",
     .low = 2,
     .high = kMostSize,
     .meaning = "Width of each head of queries, keys and values; even.",
     .assign = into<&Llama::head_dim>},
    {.name = "model.max_position_embeddings",
     .kind = Kind::kWhole,
     .derived = "2048, or data.sequence_length if that is longer",
     .low = 1,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "Longest sequence that the model takes.",
     .assign = into<&Llama::max_position_embeddings>},
    {.name = "model.rope_theta",
     .kind = Kind::kReal,
     .standard = "10000",
     .low = 0,
     .high = 1e12,
     .above_low = true,
     .meaning = "Base of the rotary embedding.",
     .assign = into<&Llama::rope_theta>},
    {.name = "model.rope_type",
     .kind = Kind::kChoice,
     .standard = "default",
     .choices = "default linear llama3",
     .meaning =
         "How the rotary embedding is scaled: not at all, all frequencies divided by rope_factor, or as Llama 3.1 "
         "does it.",
     .assign = into<&Llama::rope_type>},
    {.name = "model.rope_factor",
     .kind = Kind::kReal,
     .derived = "8, with rope_type linear or llama3",
     .low = 1,
     .high = 1e6,
     .meaning = "By how much the rotary embedding is stretched.",
     .assign = into<&Llama::rope_factor>},
    {.name = "model.rope_low_freq_factor",
     .kind = Kind::kReal,
     .derived = "1, with rope_type llama3",
     .low = 0,
     .high = 1e6,
     .above_low = true,
     .meaning = "Wavelengths above rope_original_max_position_embeddings / this are stretched by rope_factor.",
     .assign = into<&Llama::rope_low_freq_factor>},
    {.name = "model.rope_high_freq_factor",
     .kind = Kind::kReal,
     .derived = "4, with rope_type llama3",
     .low = 0,
     .high = 1e6,
     .above_low = true,
     .meaning = "Wavelengths below rope_original_max_position_embeddings / this are not stretched.",
     .assign = into<&Llama::rope_high_freq_factor>},
    {.name = "model.rope_original_max_position_embeddings",
     .kind = Kind::kWhole,
     .derived = "8192, with rope_type llama3",
     .low = 1,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "Longest sequence before the stretching.",
     .assign = into<&Llama::rope_original_max_position_embeddings>},
    {.name = "model.rms_norm_eps",
     .kind = Kind::kReal,
     .standard = "1e-5",
     .low = 0,
     .high = 0.1,
     .above_low = true,
     .meaning = "Keeps the norm from dividing by zero.",
     .assign = into<&Llama::rms_norm_eps>},
    {.name = "model.tie_word_embeddings",
     .kind = Kind::kFlag,
     .standard = "false",
     .meaning = "Whether input and output embeddings share one table.",
     .assign = into<&Llama::tie_word_embeddings>},
    {.name = "model.attention_bias",
     .kind = Kind::kFlag,
     .standard = "false",
     .meaning = "Whether the projections of the attention have biases.",
     .assign = into<&Llama::attention_bias>},
    {.name = "model.mlp_bias",
     .kind = Kind::kFlag,
     .standard = "false",
     .meaning = "Whether the feed-forward blocks have biases.",
     .assign = into<&Llama::mlp_bias>},
    {.name = "model.attention_dropout",
     .kind = Kind::kReal,
     .standard = "0",
     .low = 0,
     .high = 0.99,
     .meaning = "Share of the attention's probabilities that training sets to zero.",
     .assign = into<&Llama::attention_dropout>},
    {.name = "model.initializer_range",
     .kind = Kind::kReal,
     .standard = "0.02",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "Standard deviation of the initial weights.",
     .assign = into<&Llama::initializer_range>},
    {.name = "model.pretrained",
     .kind = Kind::kPath,
     .meaning = kPretrainedMeaning,
     .assign = into<&Llama::pretrained>},
});

/// Fills in the values of Llama 3.1, for the types of rope that read them. Exports and checkpoints write the rows, so a
/// default that stood in the struct alone would be lost.
void derive_scaling(Values& values) {
  const auto type = values.text("model.rope_type");
  const auto set = [&](const char* key, Value value) {
    if (!values.has(key)) values.set(key, std::move(value));
  };
  const Llama usual;
  if (type == "linear" || type == "llama3") set("model.rope_factor", usual.rope_factor);
  if (type != "llama3") return;
  set("model.rope_low_freq_factor", usual.rope_low_freq_factor);
  set("model.rope_high_freq_factor", usual.rope_high_freq_factor);
  set("model.rope_original_max_position_embeddings", usual.rope_original_max_position_embeddings);
}

void derive(Values& values, std::uint64_t /*ranks*/) {
  if (!values.has("model.num_key_value_heads")) {
    values.set("model.num_key_value_heads", values.whole("model.num_attention_heads"));
  }
  derive_positions(values, kPositions);
  derive_scaling(values);
}

/// Keys without effect are mistakes.
void check_scaling(const Values& values, std::vector<Conflict>& conflicts) {
  const auto type = values.text("model.rope_type");
  const auto only_with = [&](const char* key, bool has_effect, const char* types) {
    if (has_effect || !values.has(key)) return;
    conflicts.push_back({key,
                         std::string("has no effect without model.rope_type = ") + types,
                         "remove it, or set rope_type",
                         {"model.rope_type"}});
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
      conflicts.push_back({"model.head_dim",
                           "want an even width per head for the rotary embedding",
                           multiples_near(model.head_dim, 2),
                           {}});
    }
  } else if (hidden % heads != 0) {
    conflicts.push_back({"model.hidden_size",
                         "want a multiple of num_attention_heads = " + std::to_string(heads),
                         multiples_near(hidden, 2 * heads),
                         {"model.num_attention_heads"}});
  } else if (hidden / heads % 2 != 0) {
    conflicts.push_back({"model.hidden_size",
                         "want an even width per head for the rotary embedding, not hidden_size / heads = " +
                             std::to_string(hidden / heads),
                         multiples_near(hidden, 2 * heads),
                         {"model.num_attention_heads"}});
  }
  if (pairs > 0 && heads % pairs != 0) {
    conflicts.push_back({"model.num_key_value_heads",
                         "want a divisor of num_attention_heads = " + std::to_string(heads),
                         "leave it out for one per query head",
                         {"model.num_attention_heads"}});
  }
  if (model.rope_type == RopeScaling::kLlama3 && model.rope_low_freq_factor >= model.rope_high_freq_factor) {
    conflicts.push_back({"model.rope_low_freq_factor",
                         "want less than model.rope_high_freq_factor",
                         "Llama 3.1 has 1 and 4",
                         {"model.rope_high_freq_factor"}});
  }
  return conflicts;
}

}  // namespace spec
