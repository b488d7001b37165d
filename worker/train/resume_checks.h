#pragma once

#include <filesystem>

#include "fsdp/json.h"
#include "train/recipe.h"

namespace worker {

/// Throws UsageError when the recipe's text is not the one that the checkpoint at `path` was trained on. `extra` is the
/// manifest's member of that name. Throws fsdp::JsonError when it does not name a text.
void check_same_text(const Recipe& recipe, const fsdp::Json& extra, const std::filesystem::path& path);

/// Throws UsageError when the checkpoint was saved by a program with another order of samples. A saved position means
/// other samples under another order.
void check_same_order(const fsdp::Json& extra, const std::filesystem::path& path);

}  // namespace worker
