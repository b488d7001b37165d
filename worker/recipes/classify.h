#pragma once

#include <memory>

#include "train/recipe.h"

namespace worker {

/// The recipe that trains an encoder to sort texts into classes.
std::unique_ptr<Recipe> make_classify(const RunConfig& config);

}  // namespace worker
