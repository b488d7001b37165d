#pragma once

#include "slurm/answer.h"
#include "slurm/command.h"

namespace slurm {

/// What an sbatch that did not succeed has done: Unsure, unless its own last words prove that nothing was taken.
///
/// Only two kinds of lines prove anything. "Batch job submission failed: ..." is what sbatch writes last, and it ends
/// then. A complaint about its options or its configuration comes before anything is sent. A line of before, as
/// "Slurm temporarily unable to accept job, sleeping and retrying", proves nothing: sbatch goes on, and may succeed. A
/// site's wrapper may call the real sbatch by another name ("sbatch.real"), may add lines, and may fail after the real
/// one has succeeded. Whoever prints a job's number has a job.
SubmitAnswer failed_submission(const CommandResult& result);

}  // namespace slurm
