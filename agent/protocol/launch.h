#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "spec/report_keys.h"

namespace agent::protocol {

/// The key "format" of the files that musterd and agents share.
inline constexpr int kFormat = 1;

/// A file that musterd wrote for an agent. Throws std::runtime_error that names the file and what to do.
inline nlohmann::ordered_json read_json_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path.string() + " cannot be read; is this file system shared with musterd?");
  auto json = nlohmann::ordered_json::parse(in, nullptr, false);
  if (!json.is_object()) throw std::runtime_error(path.string() + " is damaged; requeue the job");
  if (json.value("format", 0) != kFormat) {
    throw std::runtime_error(path.string() + " is of another version of muster; use the muster-agent of that musterd");
  }
  return json;
}

/// <attempt>/launch.json, mode 0600: it holds the attempt's token and the user's environment. musterd writes it when it
/// starts or submits an attempt. An agent reads it when the attempt starts, which may be days later on Slurm. A musterd
/// that was updated reads it again when it adopts an attempt of its own machine.
inline constexpr const char* kLaunchFile = "launch.json";

/// The part of an attempt on musterd's own machine, where one agent has all ranks.
struct LocalLaunch {
  std::string program;                          // what is executed; relative to the working folder unless absolute
  std::map<std::string, std::string> base_env;  // what a rank's environment begins with
  std::uint32_t ranks = 1;
  std::optional<std::string> allowed_devices = {};  // what the attempt may see, as CUDA_VISIBLE_DEVICES has it
  std::vector<std::string> devices = {};            // of those, what each rank sees; empty: ranks are given none
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
  std::uint64_t open_files = 0;  // the soft limit that ranks get; 0: as their agent has it
  bool operator==(const LocalLaunch&) const = default;
};

/// The tasks of a script for sbatch, which the script's own srun starts.
struct BatchTasks {
  std::uint32_t of_node = 1;
  std::uint32_t cpus_of_task = 0;  // 0: not said
  std::string partition = {};      // empty: the default one
  bool operator==(const BatchTasks&) const = default;
};

/// The facts that musterd tells the agents of one attempt.
struct Launch {
  std::vector<std::string> argv;           // argv[0] as the user wrote it
  std::map<std::string, std::string> env;  // the user's and muster's own: wins over everything else
  std::string working_folder;
  std::string log_folder;
  std::string job_name;
  /// Where musterd has raised this attempt's fence; empty: nowhere. A fence elsewhere counts another job's attempts.
  std::string fence_folder = {};
  /// Where people look for the log besides: a pattern as of `sbatch --output`; empty: nowhere else.
  std::string log_link = {};
  /// Any program, which knows nothing of the controller: it is told by signals, and gets MASTER_ADDR and MASTER_PORT.
  bool is_command = false;
  /// Slurm's signals reach the agent alone on this cluster, so the agent hands them on.
  bool forward_signals = false;
  std::int64_t time_limit_ms = 0;  // of the Slurm job; 0: no limit
  std::int64_t stop_grace_ms = 0;  // how long ranks may take to save
  spec::ReportSources report = {};
  bool own_launcher = false;  // the program starts its ranks itself, and is told of no rank
  /// The program is a script for sbatch: it is started once, and finds what a batch script finds. Absent: it is not.
  std::optional<BatchTasks> batch = {};
  /// musterd has left it to the start of the attempt to make the folders, to raise the fence and to write the run file:
  /// see agent/watch/agent_files.h. Else it has done so.
  bool unprepared = false;
  std::string run_file = {};              // the text of the file that MUSTER_RUN_FILE names: JSON; empty: there is none
  std::string cache_folder = {};          // of prepared text; empty: there is none
  std::optional<LocalLaunch> local = {};  // absent: on Slurm, where the task's variables tell the rank
  bool operator==(const Launch&) const = default;
};

/// Throws std::invalid_argument when a text in it is not UTF-8.
std::string to_text(const Launch& launch);

/// Throws std::runtime_error that begins with `place` and says what is wrong.
Launch parse_launch(std::string_view text, const std::string& place);

/// MUSTER_ATTEMPT_FOLDER of the ranks of a launch file, also of one that an earlier musterd has written; empty: none.
std::string attempt_mark_in(std::string_view text);

/// Reads the file of this attempt. Throws std::runtime_error that names the file and what is wrong.
Launch read_launch(const std::filesystem::path& attempt_folder);

/// A launch file as JSON. Throws nlohmann::json::exception where `run_file` is no JSON.
nlohmann::ordered_json json_of(const Launch& launch);

/// Throws std::runtime_error that begins with `place` and says what is wrong.
Launch launch_of_json(const nlohmann::ordered_json& json, const std::string& place);

// The files of a Slurm array, in a folder of its own. musterd writes them when it submits the array, so a waiting
// element has no file of its own. `muster-agent --prepare` makes an element's folders and files when the element
// starts.

/// The attempt folders of the elements by index. musterd also reads it, when it finds an array that it does not
/// remember.
inline constexpr const char* kSetFile = "set.json";
/// The launch files of the elements, mode 0600: what most of them share, and what is different in each.
inline constexpr const char* kSetLaunchFile = "set_launch.json";

std::string to_set_text(const std::vector<std::string>& attempt_folders);

/// Reads the attempt folder at each index; empty for an element that is no text. An empty list: the text is damaged.
std::vector<std::string> parse_set(std::string_view text);

/// The attempt folder of element `index`. Throws std::runtime_error that names the file and what is wrong.
std::filesystem::path attempt_of_set(const std::filesystem::path& set_file, std::size_t index);

/// Throws nlohmann::json::exception when a text in it is not UTF-8.
std::string to_set_launch_text(const std::vector<Launch>& launches);

/// The launch file of element `index`. Throws std::runtime_error that names the file and what is wrong.
Launch launch_of_set(const std::filesystem::path& set_launch_file, std::size_t index);

/// Where an element of an array has its log, in the attempt's folder once the element has started.
struct ElementPlace {
  std::string set_folder;
  std::uint32_t index = 0;
  bool operator==(const ElementPlace&) const = default;
};
inline constexpr const char* kElementFile = "element.json";
std::string to_text(const ElementPlace& place);
/// nullopt: the text is no such file's.
std::optional<ElementPlace> parse_element(std::string_view text);

}  // namespace agent::protocol
