#pragma once

#include <map>
#include <string>

namespace spec {

/// Variables by name. [Note: a rank's environment]
///
/// A rank's environment is made of four layers. A later layer replaces what an earlier one says of the same name.
/// 1. The base: login_environment(), and what the job took from its submitter (JobSpec.submitted_env). On Slurm it is
///    sbatch's whole environment; Slurm, its prologs and the job's setup lines then add to it.
/// 2. rank_variables(): where the rank stands.
/// 3. The job's [env].
/// 4. MUSTER_JOB_ID and the others that musterd sets for the attempt.
/// Nothing of the environment of musterd itself reaches a rank. The one exception is CUDA_VISIBLE_DEVICES on a machine
/// that shows no GPU, or with --local-gpus open. Elsewhere a local rank sees the GPUs that its attempt was given.
using Environment = std::map<std::string, std::string>;

}  // namespace spec
