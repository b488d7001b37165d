#pragma once

#include <memory>

#include "train/recipe.h"

namespace worker {

/// The recipe that the run names. `config` must outlive it. Throws UsageError listing the existing recipes, and as the
/// recipe's constructor.
std::unique_ptr<Recipe> make_recipe(const RunConfig& config);

}  // namespace worker
