#pragma once

#include <cstdint>

#include "data/format/reader.h"
#include "spec/tables/causal.h"
#include "worker/generate/decode.h"
#include "worker/models/causal_model.h"
#include "worker/recipes/decode_text.h"
#include "worker/train/evaluation.h"

namespace worker {

/// How a model is asked for moves of chess.
struct MoveQuestions {
  spec::LegalMoves notation = spec::LegalMoves::kSan;
  std::int64_t samples = 64;         ///< moves that are asked for, over all ranks
  std::int64_t sequence_length = 0;  ///< tokens that the model was trained on
  Activations activations;
};

/// Gives the model the beginnings of validation games and counts how many of its next moves are legal, as
/// validation/legal_moves. Game k is cut before one of its first 20 moves of a side. The model's most likely tokens are
/// its answer. Collective.
void ask_for_moves(Evaluation& evaluation, CausalModel& model, const data::format::Dataset& games,
                   const DecodeText& text_of, const MoveQuestions& questions);

}  // namespace worker
