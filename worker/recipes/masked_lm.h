#pragma once

#include <memory>

#include "worker/train/recipe.h"

namespace worker {

/// The recipe that trains an encoder to predict masked tokens (Devlin et al., BERT, arXiv 1810.04805).
std::unique_ptr<Recipe> make_masked_lm(const RunConfig& config);

}  // namespace worker
