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

/// Values that make no sense, of which submitit writes a script and we none.
std::vector<SubmititCase> submitit_nonsense();

/// So many random cases: 1 to 8 parameters in 1 to 3 calls, 1 to 300 submissions. The same for the same seed.
std::vector<SubmititCase> submitit_draws(std::uint32_t seed, std::size_t count);

}  // namespace slurm
