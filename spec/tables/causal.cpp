#include "spec/tables/causal.h"

#include <array>
#include <string>

#include "spec/limits.h"

namespace spec {
namespace {

constexpr std::string_view kLegalMoves = "train.legal_moves";

constexpr auto kKeys = std::to_array<Key>({
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

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  if (values.text(kLegalMoves) == "none" || !values.has(kLegalMoves) || !values.text("data.prepared").empty()) return;
  conflicts.push_back({std::string(kLegalMoves),
                       "want none without data.prepared",
                       "prepare games with muster data prepare --from chess",
                       {"data.prepared"}});
}

}  // namespace

const Table& causal() {
  static const Table table{"causal_lm", kKeys, nullptr, check};
  return table;
}

}  // namespace spec
