#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/report_sources.h"

namespace agent::protocol {

/// <attempt>/launch.json. musterd writes it (mode 0600: it holds the user's environment, secrets included), and
/// muster-supervisor reads it at once. A musterd that was updated reads it again when it adopts the attempt.
inline constexpr const char* kLocalLaunchFile = "launch.json";

/// What a supervisor is to start on this machine.
struct LocalLaunch {
  std::int64_t job = 0;
  std::uint32_t attempt = 0;
  std::string job_name;
  std::string program;                          // what is executed; relative to the working folder unless absolute
  std::vector<std::string> argv;                // argv[0] as the user wrote it
  std::map<std::string, std::string> base_env;  // what a rank's environment begins with
  std::map<std::string, std::string> env;       // the job's own: wins over everything else
  std::string working_folder;
  std::string log_folder;
  std::uint32_t ranks = 1;
  std::uint32_t gpus_per_rank = 0;
  std::optional<std::string> allowed_devices = {};  // what the attempt may see, as CUDA_VISIBLE_DEVICES has it
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
  bool is_command = true;        // any program, which may report by files; muster-worker speaks for itself
  std::uint64_t open_files = 0;  // the soft limit that ranks get; 0: as their supervisor has it
  spec::ReportSources report = {};
  bool own_launcher = false;  // the program starts its ranks itself, and is told of no rank
  bool operator==(const LocalLaunch&) const = default;
};

/// Throws std::invalid_argument when a text in it is not UTF-8.
std::string to_text(const LocalLaunch& launch);

/// Files of older versions have no base_env, no is_command, no open_files, no report and no own_launcher. Throws
/// std::runtime_error when the text makes no sense.
LocalLaunch parse_local_launch(std::string_view text);

}  // namespace agent::protocol
