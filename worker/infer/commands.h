#pragma once

#include <string>
#include <vector>

#include "worker/infer/infer_options.h"
#include "worker/infer/texts.h"

namespace infer {

/// Runs the command of the options.
void run(const Options& options, const std::vector<std::string>& texts, const Console& console);

}  // namespace infer
