#pragma once

#include <string>
#include <vector>

namespace agent::program {

/// srun of a script that runs without Slurm, on one machine: starts the tasks with Slurm's variables, hands signals on,
/// and returns the highest exit code. Reads srun's options that count tasks, cores and GPUs, and those of folder, log
/// files and labels; others have no effect. `words`: without the program's name.
int run_srun(const std::vector<std::string>& words);

/// scontrol of such a script: "show hostnames" alone.
int run_scontrol(const std::vector<std::string>& words);

}  // namespace agent::program
