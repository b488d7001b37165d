#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "spec/variables.h"

// A script for sbatch beside its agent (launcher = "batch"): the commands of Slurm that it finds where no Slurm is, and
// the signals that it gets.
namespace agent::program {

/// Makes a folder in the attempt's own with `srun` and `scontrol` for scripts that run without Slurm: both are
/// muster-agent, see stand_in.h. May be repeated. Throws std::filesystem::filesystem_error.
void make_stand_ins(const std::filesystem::path& attempt_folder);

/// Puts that folder into PATH. A login shell reads a PATH of its own, so `argv` with such a shell gets functions, too.
void add_stand_ins(const std::filesystem::path& attempt_folder, const std::vector<std::string>& argv,
                   spec::Environment& to);

/// True for signals that Slurm sends to a script alone (--signal=B:USR1) and that say nothing of the attempt's end.
bool is_scripts_own(int signal);

/// Asks a script to leave: SIGTERM for each process of its group. A shell that would die of SIGTERM while it waits for
/// a child is passed over, since its end would end the child at once. So is Slurm's own srun, which kills its tasks at
/// a SIGTERM: with `slurm_job` the tasks are asked by scancel.
void ask_script(pid_t script, const std::string& slurm_job);

}  // namespace agent::program
