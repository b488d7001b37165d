#include "schema/tables/llama.h"

#include <algorithm>
#include <array>

#include "schema/limits.h"

namespace schema {
namespace {

constexpr std::int64_t kPositions = 2048;

constexpr auto kKeys = std::to_array<Key>({
    {.name = "model.vocab_size",
     .kind = Kind::kWhole,
     .derived = "what the data needs",
     .low = kByteVocabulary,
     .high = kMostSize,
     .meaning = "Size of the vocabulary.",
     .assign = into<&Llama::vocab_size>},
    {.name = "model.hidden_size",
     .kind = Kind::kWhole,
     .standard = "256",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width of the model. A multiple of num_attention_heads; hidden_size / num_attention_heads is even.",
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
     .meaning = "Folder of a Hugging Face Llama (config.json and safetensors) whose weights training starts from. The "
                "other keys of [model] must say its sizes. Without it the weights are drawn, seeded by train.seed.",
     .assign = into<&Llama::pretrained>},
});

void derive(Values& values, std::uint64_t /*ranks*/) {
  if (!values.has("model.num_key_value_heads")) {
    values.set("model.num_key_value_heads", values.whole("model.num_attention_heads"));
  }
  if (!values.has("model.max_position_embeddings")) {
    values.set("model.max_position_embeddings", std::max(kPositions, values.whole("data.sequence_length")));
  }
}

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  auto found = conflicts_of(bind<Llama>(llama(), values));
  conflicts.insert(conflicts.end(), found.begin(), found.end());
  const auto positions = values.whole("model.max_position_embeddings");
  if (values.whole("data.sequence_length") > positions) {
    conflicts.push_back({"data.sequence_length",
                         "want at most model.max_position_embeddings = " + std::to_string(positions),
                         "shorten it, or leave max_position_embeddings out",
                         {"model.max_position_embeddings"}});
  }
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
  if (hidden % heads != 0) {
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
  return conflicts;
}

}  // namespace schema
