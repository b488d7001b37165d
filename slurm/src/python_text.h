#pragma once

#include <optional>
#include <string>

#include "slurm/submitit_style.h"

namespace slurm {

/// What Python's str() makes of a value; lists and dictionaries give an empty text.
std::string python_str(const SubmititValue& value);

/// Whether Python takes a value for true.
bool python_truth(const SubmititValue& value);

/// A bool, int or float as a number; nothing for anything else.
std::optional<double> python_number(const SubmititValue& value);

}  // namespace slurm
