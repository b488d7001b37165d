#pragma once

#include "schema/table.h"

namespace schema {

/// How long the texts of a training on single texts or pairs may be.
struct Sequence {
  std::int64_t sequence_length = 0;  // tokens, special ones included
};

/// The rows of Sequence.
const Table& sequence();

}  // namespace schema
