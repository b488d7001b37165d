#pragma once

#include <string>
#include <string_view>

namespace jobfile {

/// Why `[slurm.options]` may not have this option, with the key to use instead; empty if it may. Options that muster
/// sets or needs itself are refused, and what sbatch takes for short forms of them.
std::string refuse_slurm_option(std::string_view name);

}  // namespace jobfile
