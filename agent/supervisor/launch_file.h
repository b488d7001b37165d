#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"

namespace runtime::local {

/// What a supervisor is to start: launch.json. Holds the user's environment, secrets included, so the file's mode is
/// 0600.
struct LaunchFile {
  core::AttemptKey key;
  std::string job_name;
  std::string program;                          // what is executed; relative to the working folder unless absolute
  std::vector<std::string> argv;                // argv[0] as the user wrote it
  std::map<std::string, std::string> base_env;  // what a rank's environment begins with
  std::map<std::string, std::string> env;       // the job's own: wins over everything else
  std::string working_folder;
  std::string log_folder;
  std::uint32_t ranks = 1;
  std::uint32_t gpus_per_rank = 0;
  std::optional<std::string> allowed_devices = {};  // musterd's own CUDA_VISIBLE_DEVICES
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
  std::uint64_t open_files = 0;  // the soft limit that ranks get; 0: as their supervisor has it
  bool operator==(const LaunchFile&) const = default;
};

/// Throws std::system_error when it cannot be written, std::invalid_argument when a text is not UTF-8.
void write_launch_file(int folder, const LaunchFile& launch);

/// Nothing if there is none. Throws std::runtime_error when it cannot be read or makes no sense.
std::optional<LaunchFile> read_launch_file(int folder);

}  // namespace runtime::local
