#include "opt/table.h"

#include <array>

#include "spec/limits.h"
#include "spec/tables/model_rules.h"

namespace spec {
namespace {

constexpr std::int64_t kOptPositions = 2048;

constexpr auto kOptKeys = std::to_array<Key>({
    {.name = "model.vocab_size",
     .kind = Kind::kWhole,
     .derived = "what the data needs",
     .low = 2,
     .high = kMostSize,
     .meaning = "Size of the vocabulary.",
     .assign = into<&Opt::vocab_size>},
    {.name = "model.hidden_size",
     .kind = Kind::kWhole,
     .standard = "256",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width of the model; a multiple of num_attention_heads.",
     .assign = into<&Opt::hidden_size>},
    {.name = "model.ffn_dim",
     .kind = Kind::kWhole,
     .standard = "1024",
     .low = 1,
     .high = kMostSize,
     .meaning = "Width inside the feed-forward blocks.",
     .assign = into<&Opt::ffn_dim>},
    {.name = "model.num_hidden_layers",
     .kind = Kind::kWhole,
     .standard = "4",
     .low = 1,
     .high = 10'000,
     .meaning = "Number of transformer blocks.",
     .assign = into<&Opt::num_hidden_layers>},
    {.name = "model.num_attention_heads",
     .kind = Kind::kWhole,
     .standard = "4",
     .low = 1,
     .high = kMostSize,
     .meaning = "Number of heads.",
     .assign = into<&Opt::num_attention_heads>},
    {.name = "model.max_position_embeddings",
     .kind = Kind::kWhole,
     .derived = "2048, or data.sequence_length if that is longer",
     .low = 1,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "Longest sequence that the model takes.",
     .assign = into<&Opt::max_position_embeddings>},
    {.name = "model.dropout",
     .kind = Kind::kReal,
     .standard = "0",
     .low = 0,
     .high = 0.99,
     .meaning = "Share of each block's results that training sets to zero.",
     .assign = into<&Opt::dropout>},
    {.name = "model.init_std",
     .kind = Kind::kReal,
     .standard = "0.02",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "Standard deviation of the initial weights.",
     .assign = into<&Opt::init_std>},
    {.name = kPretrained, .kind = Kind::kPath, .meaning = kPretrainedMeaning, .assign = into<&Opt::pretrained>},
});

void derive_opt(Values& values, std::uint64_t /*ranks*/) {
  derive_positions(values, kOptPositions);
}

void check_opt(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  want_even_heads(values.whole("model.hidden_size"), values.whole("model.num_attention_heads"), conflicts);
  want_positions(values, conflicts);
}

}  // namespace

const Table& opt() {
  static const Table table{"opt", kOptKeys, derive_opt, check_opt};
  return table;
}

}  // namespace spec
