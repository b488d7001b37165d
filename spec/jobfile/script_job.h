#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "spec/jobfile/job_file.h"

namespace jobfile {

/// A script for sbatch, as `muster submit slurm_submit.sh a b` has read it.
struct SbatchScript {
  std::string text;
  std::string name;                    // for problems: "slurm_submit.sh", "standard input"
  std::vector<std::string> arguments;  // $1 and those after it
  std::filesystem::path folder;        // where it is submitted, absolute
};

/// True if a file's text is a script for sbatch, and no job file.
bool is_sbatch_script(std::string_view file_name, std::string_view text);

/// A script as a job: launcher = "batch", and a command that saves the script's text with each attempt and runs it.
struct ScriptJob {
  JobSource source;
  std::vector<Override> overrides = {};    // of #SBATCH lines; those of the command line come after them and win
  std::vector<SweepAxis> axes = {};        // of --array
  std::uint32_t parallel = 0;              // of --array=0-7%2; 0: no limit
  std::vector<std::string> problems = {};  // "slurm_submit.sh:3: --wrap ls: ..."
  std::vector<std::string> notes = {};     // on options without effect, in the same form
};

/// Makes the job. Each option becomes the key whose row names it (job_keys.cpp), or goes to sbatch as it is
/// (slurm.options). `later`: the options of the command line, of which the number of nodes counts here. `here`: the
/// submitter's environment, of which the job takes the variables that the script names, besides those of any command.
ScriptJob job_of_script(const SbatchScript& script, const std::vector<Override>& later, const spec::Environment& here);

/// The option of sbatch may stand in slurm.options of a job with launcher = "batch", though keys of other jobs stand
/// for it: the tasks are started by the script's own srun.
bool is_for_script(std::string_view option);

/// The GPUs that a job with launcher = "batch" asks for on each node, in whichever way: slurm.gres, gpus-per-node and
/// so on; 0: none.
std::uint32_t gpus_of_node(const muster::v1::JobSpec& spec);

}  // namespace jobfile
