#include "spec/tables/seq2seq.h"

#include <array>

#include "spec/limits.h"

namespace spec {
namespace {

constexpr std::string_view kObjective = "train.objective", kDensity = "train.span_density",
                           kLength = "train.span_length";

constexpr auto kKeys = std::to_array<Key>({
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

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  if (values.text(kObjective) == "spans") return;
  for (const auto key : {kDensity, kLength}) {
    if (!values.has(key)) continue;
    conflicts.push_back(
        {std::string(key), "want objective = \"spans\" with it", "leave it out", {std::string(kObjective)}});
  }
}

}  // namespace

const Table& seq2seq() {
  static const Table table{"seq2seq", kKeys, derive, check};
  return table;
}

}  // namespace spec
