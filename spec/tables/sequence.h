#pragma once

#include "spec/table.h"

namespace spec {

/// How long the texts of a training on single texts or pairs may be.
struct Sequence {
  std::int64_t sequence_length = 0;  // tokens, special ones included
};

/// The rows of Sequence.
const Table& sequence();

}  // namespace spec
