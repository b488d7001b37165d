#pragma once

#include <string>

namespace slurm {

/// What a failed sbatch's own words prove.
///
/// Only words that Slurm writes after it has thrown a submission away are a refusal. All other failures are kUnknown:
/// the submission may have been taken all the same, and its job is looked for in Slurm's list before anything else is
/// done. A site's wrapper may fail after the real sbatch has succeeded.
enum class Refusal {
  kUsers,    // nothing was taken, and no later try can succeed: the job file asks for what the cluster does not have
  kTooMany,  // nothing was taken: a limit on how many jobs may be in the queue
  kForNow,   // nothing was taken: a state of Slurm that changes by itself
  kUnknown,  // proves nothing
};

/// Reads the words, without "sbatch: error: ".
Refusal understand_refusal(const std::string& words);

}  // namespace slurm
