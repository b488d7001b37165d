#pragma once

#include "base/command.h"
#include "slurm/answer.h"

namespace slurm {

/// Classifies an sbatch that did not succeed. The answer is Unsure, unless sbatch's own last words prove that nothing
/// was accepted.
///
/// Only two kinds of lines prove anything:
/// - "Batch job submission failed: ..." is the last line that sbatch writes before it ends.
/// - A complaint about options or configuration comes before sbatch sends anything.
/// An earlier line such as "Slurm temporarily unable to accept job, sleeping and retrying" proves nothing, because
/// sbatch goes on and may succeed. A site's wrapper may call the real sbatch by another name ("sbatch.real"), may add
/// lines, and may fail after the real sbatch has succeeded. Output that names a job's number means that there is a job.
SubmitAnswer failed_submission(const base::CommandResult& result);

}  // namespace slurm
