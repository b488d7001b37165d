#include "spec/tables/gpt_neox_keys.h"

#include <array>

#include "spec/limits.h"
#include "spec/tables/model_rules.h"

namespace spec {
namespace {

constexpr std::int64_t kGptNeoXPositions = 2048;

constexpr auto kGptNeoXKeys = std::to_array<Key>({
    {.name = "model.vocab_size",
     .kind = Kind::kWhole,
     .derived = "what the data needs",
     .low = 2,
     .high = kMostSize,
     .meaning = "Size of the vocabulary.",
     .assign = into<&GptNeoX::vocab_size>},
    {.name = "model.hidden_size",
     .kind = Kind::kWhole,
     .standard = "256",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width of the model; a multiple of num_attention_heads.",
     .assign = into<&GptNeoX::hidden_size>},
    {.name = "model.intermediate_size",
     .kind = Kind::kWhole,
     .standard = "1024",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width inside the feed-forward blocks.",
     .assign = into<&GptNeoX::intermediate_size>},
    {.name = "model.num_hidden_layers",
     .kind = Kind::kWhole,
     .standard = "4",
     .low = 1,
     .high = 10'000,
     .meaning = "Number of transformer blocks.",
     .assign = into<&GptNeoX::num_hidden_layers>},
    {.name = "model.num_attention_heads",
     .kind = Kind::kWhole,
     .standard = "4",
     .low = 1,
     .high = kMostSize,
     .meaning = "Number of attention heads.",
     .assign = into<&GptNeoX::num_attention_heads>},
    {.name = "model.max_position_embeddings",
     .kind = Kind::kWhole,
     .derived = "2048, or data.sequence_length if that is longer",
     .low = 1,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "Longest sequence that the model takes.",
     .assign = into<&GptNeoX::max_position_embeddings>},
    {.name = "model.hidden_act",
     .kind = Kind::kChoice,
     .standard = "gelu",
     .choices = "gelu gelu_new gelu_pytorch_tanh relu silu",
     .meaning = "The nonlinear function of the feed-forward blocks; gelu_new and gelu_pytorch_tanh are GELU by tanh.",
     .assign = into<&GptNeoX::hidden_act>},
    {.name = "model.rotary_pct",
     .kind = Kind::kReal,
     .standard = "0.25",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "Share of each head's elements that the rotary embedding turns; an even number of them.",
     .assign = into<&GptNeoX::rotary_pct>},
    {.name = "model.rotary_emb_base",
     .kind = Kind::kReal,
     .standard = "10000",
     .low = 0,
     .high = 1e12,
     .above_low = true,
     .meaning = "Base of the rotary embedding.",
     .assign = into<&GptNeoX::rotary_emb_base>},
    {.name = "model.layer_norm_eps",
     .kind = Kind::kReal,
     .standard = "1e-5",
     .low = 0,
     .high = 0.1,
     .above_low = true,
     .meaning = "Keeps the norm from dividing by zero.",
     .assign = into<&GptNeoX::layer_norm_eps>},
    {.name = "model.use_parallel_residual",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether attention and feed-forward block read the same input, and both are added to it.",
     .assign = into<&GptNeoX::use_parallel_residual>},
    {.name = "model.tie_word_embeddings",
     .kind = Kind::kFlag,
     .standard = "false",
     .meaning = "Whether input and output embeddings share one table.",
     .assign = into<&GptNeoX::tie_word_embeddings>},
    {.name = "model.attention_bias",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether the projections of the attention have biases.",
     .assign = into<&GptNeoX::attention_bias>},
    {.name = "model.attention_dropout",
     .kind = Kind::kReal,
     .standard = "0",
     .low = 0,
     .high = 0.99,
     .meaning = "Share of the attention's probabilities that training sets to zero.",
     .assign = into<&GptNeoX::attention_dropout>},
    {.name = "model.hidden_dropout",
     .kind = Kind::kReal,
     .standard = "0",
     .low = 0,
     .high = 0.99,
     .meaning = "Share of the embedding's and the blocks' outputs that training sets to zero.",
     .assign = into<&GptNeoX::hidden_dropout>},
    {.name = "model.initializer_range",
     .kind = Kind::kReal,
     .standard = "0.02",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "Standard deviation of the initial weights.",
     .assign = into<&GptNeoX::initializer_range>},
    {.name = "model.pretrained",
     .kind = Kind::kPath,
     .meaning = kPretrainedMeaning,
     .assign = into<&GptNeoX::pretrained>},
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
    conflicts.push_back({"model.rotary_pct",
                         "want an even number of rotated elements, not " + std::to_string(turned) + " of the " +
                             std::to_string(model.head_size()) + " of a head",
                         "1 turns all of them",
                         {"model.hidden_size", "model.num_attention_heads"}});
  }
  return conflicts;
}

}  // namespace spec
