#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "spec/environment.h"

namespace spec {

/// This process's own environment.
Environment own_environment();

/// Whether a job with environment = "submit" takes this variable from its submitter: what decides which programs and
/// libraries are found. PATH, VIRTUAL_ENV, PYTHONPATH, LD_LIBRARY_PATH, and names that begin with CONDA_.
bool is_taken(std::string_view name);
/// Those variables of a submitter's environment.
Environment taken_from(const Environment& submitter);

}  // namespace spec
