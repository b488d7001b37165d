#pragma once

#include <memory>

#include "worker/train/recipe.h"

namespace worker {

/// The recipe that trains an encoder to sort texts into classes.
std::unique_ptr<Recipe> make_classify(const RunConfig& config);

}  // namespace worker
