#include "spec/tables/masked_lm.h"

#include <array>

namespace spec {
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

}  // namespace spec
