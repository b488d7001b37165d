#pragma once

#include "spec/table.h"

namespace spec {

/// The notation in which a model is asked for moves of chess.
enum class LegalMoves { kNone, kSan, kUci };

/// What a training of a decoder has of its own.
struct Causal {
  LegalMoves legal_moves = LegalMoves::kNone;
  std::int64_t generated_samples = 0;
};

/// The rows of Causal.
const Table& causal();

}  // namespace spec
