#pragma once

#include <string>

#include "spec/table.h"

namespace spec {

/// What an encoder-decoder learns: to answer inputs, or to fill in spans that were cut out of texts.
enum class Objective { kPairs, kSpans };

/// What a training of an encoder-decoder has of its own.
struct Seq2Seq {
  Objective objective = Objective::kPairs;
  std::int64_t target_length = 0;  // tokens, special ones included
  double span_density = 0, span_length = 0;
  bool rouge = true;
  std::int64_t generated_samples = 0;
};

/// The rows of Seq2Seq.
const Table& seq2seq();

}  // namespace spec
