#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/slurm/submitit/submitit_style.h"

namespace slurm {

/// The request of a submitit user. A temporary folder is put in front of `folder`.
struct SubmititCase {
  std::string what;
  std::vector<SubmititParameters> calls;
  std::uint64_t submissions = 1;
  std::string folder = "/run";
};

/// A broad table: every parameter, generic and Slurm's, alone and combined, with plain, odd and hostile values.
std::vector<SubmititCase> submitit_cases();

/// Meaningless values for which submitit writes a script and render_submitit() refuses.
std::vector<SubmititCase> submitit_nonsense();

/// `count` random cases: 1 to 8 parameters in 1 to 3 calls, 1 to 300 submissions. The same seed gives the same cases.
std::vector<SubmititCase> submitit_draws(std::uint32_t seed, std::size_t count);

}  // namespace slurm
