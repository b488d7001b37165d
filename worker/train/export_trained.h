#pragma once

#include <string>

#include "train/config.h"
#include "train/recipe.h"

namespace worker {

/// Refuses train.export_folder before the first step where an export could not be written at the end. Throws
/// UsageError. Not collective.
void check_export(const RunConfig& config);

/// Writes the trained model as train.export_folder asks, and returns a line for people. Returns an empty text when no
/// export is asked for. Writing it again replaces it. Collective. Throws c10::Error on all ranks when it cannot be
/// written.
std::string export_trained(const RunConfig& config, Recipe& recipe, Parts& parts);

}  // namespace worker
