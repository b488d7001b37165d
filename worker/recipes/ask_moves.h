#pragma once

#include <cstdint>

#include "generate/decode.h"
#include "models/causal_model.h"
#include "prepared/reader.h"
#include "recipes/decode_text.h"
#include "schema/tables/causal.h"
#include "train/evaluation.h"

namespace worker {

/// How a model is asked for moves of chess.
struct MoveQuestions {
  schema::LegalMoves notation = schema::LegalMoves::kSan;
  std::int64_t samples = 64;         ///< moves that are asked for, over all ranks
  std::int64_t sequence_length = 0;  ///< tokens that the model was trained on
  Activations activations;
};

/// Gives the model the beginnings of validation games and counts how many of its next moves are legal, as
/// validation/legal_moves. Game k is cut before one of its first 20 moves of a side. The model's most likely tokens are
/// its answer. Collective.
void ask_for_moves(Evaluation& evaluation, CausalModel& model, const prepared::Dataset& games,
                   const DecodeText& text_of, const MoveQuestions& questions);

}  // namespace worker
