#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/format/dataset.h"
#include "spec/tables/text_recipe_keys.h"
#include "worker/generate/decode.h"
#include "worker/models/causal_model.h"
#include "worker/train/evaluation.h"

namespace worker {

/// The text of a tokenizer's ids, without special tokens. Thread-safe.
using DecodeText = std::function<std::string(const std::vector<std::int64_t>& ids)>;

/// `path` is "bytes" for the byte vocabulary, or a folder with a tokenizer's files; see data/tokenizers/tokenizer.h.
/// Throws base::UsageError naming the path, what is wrong with it, and the remedy. A build without the library of
/// tokenizers knows bytes alone.
DecodeText decode_text_of(const std::string& path);

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
