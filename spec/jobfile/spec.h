#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/v1/job.pb.h"

namespace jobfile {

/// Sets every absent field to its default. A second call changes nothing. A job without a program gets no recipe, and
/// validate() reports it. The defaults are in the rows of job_keys(); `muster submit --help` shows them.
void fill_defaults(muster::v1::JobSpec& spec);

/// One problem of a job. Printed as `field "value": message; remedy`.
struct Problem {
  std::string field;                 // a key of the job file: "train.batch_size", "env.PATH"; empty: the whole job
  std::string value;                 // as people write it: "12h"
  std::string message;               // what is wanted instead: "want a multiple of 16 (8 a micro-batch x 2 ranks)"
  std::string remedy;                // what to do: "try 16 or 32"; may be empty
  std::vector<std::string> related;  // other keys that the problem depends on
};
std::string to_string(const Problem& problem);

/// A problem and its place, in parts for programs and as a line for people.
struct Finding {
  std::string place;    // "job.toml:4:14", "--set train.steps=x", "job"
  std::string key;      // "train.steps"; may be empty
  std::string value;    // as people write it; may be empty
  std::string message;  // "want a whole number from 1 to 9"
  std::string remedy;   // may be empty
  std::string line;     // all of it: `job.toml:4:14: train.steps "x": want ...`
};
/// The finding of a text of the form `message; remedy`. `shown`: the text before it in the line, such as `key "value":
/// `.
Finding finding_of(const std::string& place, const std::string& shown, const std::string& said);

/// Tells whether to check that folders exist. kLook only if the job would run on this machine.
enum class FileChecks { kSkip, kLook };

/// The problems of a spec whose defaults are filled in, at most kMostProblems; empty: the spec is valid.
std::vector<Problem> validate(const muster::v1::JobSpec& spec, FileChecks checks);
inline constexpr std::size_t kMostProblems = 20;

/// True for letters, digits and "_" with no digit first.
bool is_variable_name(const std::string& name);
/// True for a variable that muster sets for the ranks, whatever the job file says.
bool is_set_by_muster(const muster::v1::JobSpec& spec, std::string_view variable);

/// The text as the name of a job: other characters than those of a name become "-". "job" for an empty text.
std::string as_job_name(std::string text);

/// The command is started once for the whole job, as sbatch runs a script (launcher = "batch"). Then ranks_per_node
/// counts the tasks that the script's own srun starts.
bool is_batch(const muster::v1::JobSpec& spec);

/// The processes that muster starts: nodes x ranks_per_node, and 1 for is_batch().
inline constexpr std::uint64_t kMostRanks = 4096;
std::uint64_t world_size(const muster::v1::JobSpec& spec);

/// The keys that have no effect on a command, a sentence each. A key is named if it differs from its default and only
/// muster-worker, or only a program that reports its steps, can obey it. `reports`: the program has reported steps.
/// Of any job: the keys that have an effect on sweeps alone, and keys of [slurm] on local processes. `is_local`: the
/// job runs as local processes, or will.
std::vector<std::string> idle_keys(const muster::v1::JobSpec& spec, bool reports, bool is_local);

/// A recipe's data and model that this machine does not have now, a sentence each. They need not be there before the
/// job starts, and a cluster may see other folders, so they are no reason to refuse the job.
std::vector<std::string> missing_inputs(const muster::v1::JobSpec& spec);

/// Replaces every secret of a spec by spec::kMask: in [env], in variables from the submitter, and in the values that
/// a sweep varies. spec/variables.h says what a secret is.
void mask_secrets(muster::v1::JobSpec& spec);
/// Masks the secrets in a sweep's settings only.
void mask_secrets(muster::v1::SweepElement& element);

}  // namespace jobfile
