#include "spec/tables/text_recipe_keys.h"

#include <array>
#include <string>

#include "spec/limits.h"

namespace spec {
namespace {

constexpr std::string_view kLegalMoves = "train.legal_moves";

constexpr auto kCausalKeys = std::to_array<Key>({
    row::choice(kLegalMoves, "none", "none san uci",
                "For games of chess (muster data prepare --from chess): evaluations ask the model for moves in this "
                "notation, and report the share of legal ones.",
                into<&Causal::legal_moves>),
    row::whole("train.generated_samples", "64", {1, kMostSize},
               "How many moves an evaluation asks for, with legal_moves.", into<&Causal::generated_samples>, "samples"),
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
    row::real("train.mask_share", "0.15", above(0, 0.9),
              "Probability that a token is predicted. Of the predicted tokens 80 % are masked, 10 % replaced by a "
              "random token, and 10 % kept, as in BERT. Special tokens and padding are never predicted.",
              into<&MaskedLm::mask_share>),
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
    row::whole("data.target_length", "64", {2, kMostSize},
               "The most tokens of a target, special ones included; longer targets are cut.",
               into<&Seq2Seq::target_length>, "tokens"),
    row::choice(kObjective, "pairs", "pairs spans",
                "pairs: answer an input with its target. spans: fill in what was cut out of a text, as T5 was trained "
                "first.",
                into<&Seq2Seq::objective>),
    row::real(kDensity, derived("0.15 with spans"), above(0, 0.9), "Share of a text's tokens that is cut out.",
              into<&Seq2Seq::span_density>),
    row::real(kLength, derived("3 with spans"), {1, 1000}, "Mean length of what is cut out.",
              into<&Seq2Seq::span_length>, "tokens"),
    row::flag("train.rouge", "true",
              "Whether evaluations write answers and compare them with the targets (ROUGE). For pairs.",
              into<&Seq2Seq::rouge>),
    row::whole("train.generated_samples", "64", {1, kMostSize}, "How many answers an evaluation writes.",
               into<&Seq2Seq::generated_samples>, "samples"),
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
