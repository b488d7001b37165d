#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace agent::program {

/// The values that the %-signs of a file name stand for, named as in sbatch's manual ("filename pattern").
struct PatternNames {
  std::string job_name;    // %x; a "/" becomes "_"
  std::string job;         // %j, and %J with the step
  std::string step;        // %s
  std::string array_job;   // %A; outside an array the job itself
  std::string array_task;  // %a; outside an array Slurm's own 4294967294
  std::string node;        // %N, up to the first dot
  std::string user;        // %u
  int node_rank = 0;       // %n
  int rank = 0;            // %t
};

/// Reads the names from Slurm's variables and the system; `rank` and `node_rank` are muster's own.
PatternNames pattern_names(const std::string& job_name, int rank, int node_rank);

/// The file name, numbers padded as in "%4t"; nullopt: without %t there is one file, and that is rank 0's. A sign that
/// is none of these stands for itself.
std::optional<std::string> expand_pattern(const std::string& pattern, const PatternNames& names);

/// Makes `link` a symbolic link to `log`, and the folders above it. An older link is replaced at once, so that it
/// always leads somewhere; anything else of that name is left alone. Throws std::runtime_error that says why there is
/// no link.
void place_link(const std::filesystem::path& link, const std::filesystem::path& log);

}  // namespace agent::program
