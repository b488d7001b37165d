#pragma once

#include <memory>
#include <string_view>

#include "worker/train/recipe.h"

namespace worker {

/// The recipe that the run names. `config` must outlive it. Throws base::UsageError listing the existing recipes, and
/// as the recipe's constructor.
std::unique_ptr<Recipe> make_recipe(const RunConfig& config);

/// Makes the recipe of one kind. The run must outlive it.
using RecipeMaker = std::unique_ptr<Recipe> (*)(const RunConfig& run);

/// Registers the maker of another kind of recipe for as long as this object lives. For tests that add a recipe. Not
/// thread-safe.
class ScratchMaker {
 public:
  /// `kind` must outlive the object, and no recipe may have it.
  ScratchMaker(std::string_view kind, RecipeMaker maker);
  ~ScratchMaker();
  ScratchMaker(const ScratchMaker&) = delete;
  ScratchMaker& operator=(const ScratchMaker&) = delete;

 private:
  const std::string_view kind_;
};

}  // namespace worker
