#pragma once

#include <memory>

#include "spec/recipes.h"
#include "worker/train/recipe.h"

namespace worker {

/// The row of the recipe below in spec/recipes.cpp.
spec::Recipe distill_row();

/// The recipe of docs/new-recipe.md: a decoder learns from a text and from what a larger decoder says about it
/// (Hinton et al., Distilling the Knowledge in a Neural Network, arXiv 1503.02531). `config` must outlive it.
std::unique_ptr<Recipe> make_distill(const RunConfig& config);

}  // namespace worker
