#pragma once

#include <optional>
#include <string>

#include "tests/slurm/submitit/submitit_style.h"

namespace slurm {

/// The result of Python's str() for the value. Lists and dictionaries give an empty text.
std::string python_str(const SubmititValue& value);

/// True if Python treats the value as true.
bool python_truth(const SubmititValue& value);

/// A bool, int or float as a number; nullopt for other types.
std::optional<double> python_number(const SubmititValue& value);

}  // namespace slurm
