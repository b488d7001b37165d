#pragma once

#include <memory>

#include "schema/recipes.h"
#include "train/recipe.h"

namespace worker {

/// The row of the recipe below in schema/recipes.cpp.
schema::Recipe distill_row();

/// The recipe of docs/new-recipe.md: a decoder learns from a text and from what a larger decoder says about it
/// (Hinton et al., Distilling the Knowledge in a Neural Network, arXiv 1503.02531). `config` must outlive it.
std::unique_ptr<Recipe> make_distill(const RunConfig& config);

}  // namespace worker
