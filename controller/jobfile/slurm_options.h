#pragma once

#include <string>
#include <string_view>

namespace jobfile {

/// Why `[slurm.options]` may not have this option, with the key to use instead; empty: it may. Refuses options that
/// muster sets itself, and names that sbatch takes as abbreviations of them.
std::string refuse_slurm_option(std::string_view name);

}  // namespace jobfile
