#pragma once

#include <string>

#include "spec/table.h"

namespace spec {

/// The notation in which a model is asked for moves of chess.
enum class LegalMoves { kNone, kSan, kUci };

/// The settings that a training of a decoder has of its own.
struct Causal {
  LegalMoves legal_moves = LegalMoves::kNone;
  std::int64_t generated_samples = 0;
};

/// The rows of Causal.
const Table& causal();

/// The settings that a masked-language-model training has of its own.
struct MaskedLm {
  double mask_share = 0;  // probability that an ordinary token is predicted
};

/// The rows of MaskedLm.
const Table& masked_lm();

/// The task that an encoder-decoder learns: to answer inputs, or to fill in spans that were cut out of texts.
enum class Objective { kPairs, kSpans };

/// The settings that a training of an encoder-decoder has of its own.
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
