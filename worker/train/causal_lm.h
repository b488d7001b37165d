#pragma once

#include <memory>

#include "train/recipe.h"

namespace worker {

/// The recipe that trains Llama to predict the next byte of real text.
std::unique_ptr<Recipe> make_causal_lm(const RunConfig& config);

}  // namespace worker
