#pragma once

#include <memory>

#include "worker/train/recipe.h"

namespace worker {

/// The recipe that trains an encoder-decoder on pairs of texts, or to fill in spans that were cut out of texts (Raffel
/// et al., T5, arXiv 1910.10683).
std::unique_ptr<Recipe> make_seq2seq(const RunConfig& config);

}  // namespace worker
