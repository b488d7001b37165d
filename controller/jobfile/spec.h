#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/v1/job.pb.h"

namespace jobfile {

/// Sets every absent field to its default. A job without a program gets no recipe: validate() tells. Doing it twice
/// changes nothing. The defaults stand in the rows of job_keys(); `muster submit --help` shows them.
void fill_defaults(muster::v1::JobSpec& spec);

/// One thing wrong with a job. Printed as: `field "value": want message; remedy`.
struct Problem {
  std::string field;                 // key of the job file: "train.batch_size", "env.PATH"; "" for the job as a whole
  std::string value;                 // as people write it: "12h"
  std::string message;               // what is wanted: "want a multiple of 16 (8 a micro-batch x 2 ranks)"
  std::string remedy;                // what to do: "try 16 or 32"; may be empty
  std::vector<std::string> related;  // other keys that the judgement rests on
};
std::string to_string(const Problem& problem);

/// Whether folders that must exist are looked for: only where the job would run on this machine.
enum class FileChecks { kSkip, kLook };

/// Everything wrong with a spec whose defaults are filled in; empty if it is fine. At most kMostProblems.
std::vector<Problem> validate(const muster::v1::JobSpec& spec, FileChecks checks);
inline constexpr std::size_t kMostProblems = 20;

/// Whether ranks find this variable set by muster itself, whatever the job file says.
bool is_set_by_muster(const muster::v1::JobSpec& spec, std::string_view variable);

/// nodes x ranks_per_node.
inline constexpr std::uint64_t kMostRanks = 4096;
std::uint64_t world_size(const muster::v1::JobSpec& spec);

}  // namespace jobfile
