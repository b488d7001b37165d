#pragma once

#include "spec/table.h"

namespace spec {

/// What a masked-language-model training has of its own.
struct MaskedLm {
  double mask_share = 0;  // probability that an ordinary token is predicted
};

/// The rows of MaskedLm.
const Table& masked_lm();

}  // namespace spec
