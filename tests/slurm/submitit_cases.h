#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "slurm/submitit_style.h"

namespace slurm {

/// What a user of submitit asks for; the folder goes behind a temporary one.
struct SubmititCase {
  std::string what;
  std::vector<SubmititParameters> calls;
  std::uint64_t submissions = 1;
  std::string folder = "/run";
};

/// A broad table: every parameter, generic and of Slurm, alone and together, with plain, odd and hostile values.
std::vector<SubmititCase> submitit_cases();

}  // namespace slurm
