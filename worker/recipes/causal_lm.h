#pragma once

#include <memory>

#include "worker/train/recipe.h"

namespace worker {

/// The recipe that trains a decoder to predict the next token of real text.
std::unique_ptr<Recipe> make_causal_lm(const RunConfig& config);

}  // namespace worker
