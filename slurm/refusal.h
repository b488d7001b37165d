#pragma once

#include <string>

namespace slurm {

/// What the words of a refusal mean.
///
/// Only words that Slurm writes after it has discarded a submission are a refusal. All other failures are kUnknown,
/// because Slurm may still have accepted the submission. After kUnknown, look for the job in Slurm's list before
/// anything else. One example: a site's wrapper fails after the real sbatch has succeeded.
enum class Refusal {
  kUsers,      // nothing was accepted; no later try can succeed, because the cluster lacks what the job file asks for
  kTooMany,    // nothing was accepted, because of a limit on the number of queued jobs
  kForNow,     // nothing was accepted, because of a state of Slurm that passes by itself
  kArray,      // nothing was accepted, because the array is larger than MaxArraySize, or has no elements
  kForbidden,  // the change needs the rights of an operator or admin of Slurm
  kUnknown,    // the words prove nothing
};

/// No later try of the same submission can succeed.
bool is_final(Refusal kind);

/// Classifies the words of sbatch, given without "sbatch: error: ".
Refusal understand_refusal(const std::string& words);
/// Classifies the words of scontrol that refuses to change a job: kForbidden or kUnknown.
Refusal understand_refused_change(const std::string& words);

}  // namespace slurm
