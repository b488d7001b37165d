#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/spm_json.h"

namespace data::tokenizers {

/// The merges of a BPE model, most urgent first. sentencepiece stores scores of pieces instead. Every cut of a piece
/// into two pieces is a merge; merges are sorted by the score of the whole, as transformers' generate_merges() sorts
/// them. The views point into `model`.
/// kPlain leaves out control, unknown and byte pieces, because sentencepiece never finds them in a text.
/// kLlama: the scores of the first three pieces are taken as 0.
std::vector<std::pair<std::string_view, std::string_view>> merges_of(const SpmModel& model, SpmStyle style);

}  // namespace data::tokenizers
