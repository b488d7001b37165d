#include "spec/tables/text_recipe_keys.h"

#include <array>
#include <string>

#include "spec/limits.h"

namespace spec {
namespace {

constexpr std::string_view kLegalMoves = "train.legal_moves";

constexpr auto kCausalKeys = std::to_array<Key>({
    {.name = kLegalMoves,
     .kind = Kind::kChoice,
     .standard = "none",
     .choices = "none san uci",
     .meaning = "For games of chess (muster data prepare --from chess): evaluations ask the model for moves in this "
                "notation, and report the share of legal ones.",
     .assign = into<&Causal::legal_moves>},
    {.name = "train.generated_samples",
     .kind = Kind::kWhole,
     .standard = "64",
     .low = 1,
     .high = kMostSize,
     .unit = "samples",
     .meaning = "How many moves an evaluation asks for, with legal_moves.",
     .assign = into<&Causal::generated_samples>},
});

void check_causal(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  if (values.text(kLegalMoves) == "none" || !values.has(kLegalMoves) || !values.text("data.prepared").empty()) return;
  conflicts.push_back({std::string(kLegalMoves),
                       "want none without data.prepared",
                       "prepare games with muster data prepare --from chess",
                       {"data.prepared"}});
}

}  // namespace

const Table& causal() {
  static const Table table{"causal_lm", kCausalKeys, nullptr, check_causal};
  return table;
}

namespace {

constexpr auto kMaskedLmKeys = std::to_array<Key>({
    {.name = "train.mask_share",
     .kind = Kind::kReal,
     .standard = "0.15",
     .low = 0,
     .high = 0.9,
     .above_low = true,
     .meaning = "Probability that a token is predicted. Of the predicted tokens 80 % are masked, 10 % replaced by a "
                "random token, and 10 % kept, as in BERT. Special tokens and padding are never predicted.",
     .assign = into<&MaskedLm::mask_share>},
});

}  // namespace

const Table& masked_lm() {
  static const Table table{"masked_lm", kMaskedLmKeys};
  return table;
}

namespace {

constexpr std::string_view kObjective = "train.objective", kDensity = "train.span_density",
                           kLength = "train.span_length";

constexpr auto kSeq2seqKeys = std::to_array<Key>({
    {.name = "data.target_length",
     .kind = Kind::kWhole,
     .standard = "64",
     .low = 2,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "The most tokens of a target, special ones included; longer targets are cut.",
     .assign = into<&Seq2Seq::target_length>},
    {.name = kObjective,
     .kind = Kind::kChoice,
     .standard = "pairs",
     .choices = "pairs spans",
     .meaning = "pairs: answer an input with its target. spans: fill in what was cut out of a text, as T5 was trained "
                "first.",
     .assign = into<&Seq2Seq::objective>},
    {.name = kDensity,
     .kind = Kind::kReal,
     .derived = "0.15 with spans",
     .low = 0,
     .high = 0.9,
     .above_low = true,
     .meaning = "Share of a text's tokens that is cut out.",
     .assign = into<&Seq2Seq::span_density>},
    {.name = kLength,
     .kind = Kind::kReal,
     .derived = "3 with spans",
     .low = 1,
     .high = 1000,
     .unit = "tokens",
     .meaning = "Mean length of what is cut out.",
     .assign = into<&Seq2Seq::span_length>},
    {.name = "train.rouge",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether evaluations write answers and compare them with the targets (ROUGE). For pairs.",
     .assign = into<&Seq2Seq::rouge>},
    {.name = "train.generated_samples",
     .kind = Kind::kWhole,
     .standard = "64",
     .low = 1,
     .high = kMostSize,
     .unit = "samples",
     .meaning = "How many answers an evaluation writes.",
     .assign = into<&Seq2Seq::generated_samples>},
});

void derive(Values& values, std::uint64_t /*ranks*/) {
  if (values.text(kObjective) != "spans") return;
  if (!values.has(kDensity)) values.set(kDensity, 0.15);
  if (!values.has(kLength)) values.set(kLength, 3.0);
}

void check_seq2seq(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  if (values.text(kObjective) == "spans") return;
  for (const auto key : {kDensity, kLength}) {
    if (!values.has(key)) continue;
    conflicts.push_back(
        {std::string(key), "want objective = \"spans\" with it", "leave it out", {std::string(kObjective)}});
  }
}

}  // namespace

const Table& seq2seq() {
  static const Table table{"seq2seq", kSeq2seqKeys, derive, check_seq2seq};
  return table;
}

}  // namespace spec
