#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace worker::task {

/// What musterd wrote for the ranks of one attempt: <attempt>/launch.json, readable by its owner alone, since it holds
/// the attempt's token.
struct LaunchFile {
  std::filesystem::path attempt_folder;
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;  // the user's and muster's own; wins over what is inherited
  std::string working_folder;
  std::string log_folder;
  std::string job_name;
  /// Where musterd has raised this attempt's fence; empty: nowhere. A fence elsewhere counts another job's attempts.
  std::string fence_folder;
  /// Where people look for the log besides: a pattern as of `sbatch --output`; empty: nowhere else.
  std::string log_link;
  /// Any program, which knows nothing of the controller: it is told by signals, and gets MASTER_ADDR and MASTER_PORT.
  bool is_command = false;
  /// Slurm's signals reach the task alone on this cluster, so it hands them on.
  bool forward_signals = false;
  /// Of the Slurm job, and how long ranks may take to save; 0: no limit.
  std::int64_t time_limit_ms = 0;
  std::int64_t stop_grace_ms = 0;
};

/// Reads <folder>/launch.json. Throws std::runtime_error that names the file and what is wrong.
LaunchFile read_launch_file(const std::filesystem::path& attempt_folder);

/// The attempt folder of array element `index` in a set file: {"format":1,"attempts":["/...",...]}. Throws
/// std::runtime_error.
std::filesystem::path attempt_of_set(const std::filesystem::path& set_file, std::size_t index);

}  // namespace worker::task
