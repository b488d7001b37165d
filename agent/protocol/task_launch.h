#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "spec/report_sources.h"

namespace agent::protocol {

/// <attempt>/task_launch.json. musterd writes it when it submits a Slurm job (mode 0600: it holds the attempt's token).
/// muster-task reads it when the job starts, which may be days later.
inline constexpr const char* kTaskLaunchFile = "task_launch.json";
/// The name that older versions of musterd gave the file. An attempt that an older musterd submitted may start after an
/// update, so the reader accepts this name too.
inline constexpr const char* kFormerTaskLaunchFile = "launch.json";

/// What musterd tells the muster-tasks of one attempt.
struct TaskLaunch {
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
  /// Slurm's signals reach the task alone on this cluster, so the task hands them on.
  bool forward_signals = false;
  std::int64_t time_limit_ms = 0;  // of the Slurm job; 0: no limit
  std::int64_t stop_grace_ms = 0;  // how long ranks may take to save
  spec::ReportSources report = {};
  bool own_launcher = false;  // the program starts its ranks itself, and is told of no rank
  /// musterd has left it to the start of the attempt to make the folders, to raise the fence and to write the run file:
  /// see agent/watch/attempt_start.h. Else it has done so.
  bool unprepared = false;
  std::string run_file = {};      // the text of the file that MUSTER_RUN_FILE names: JSON; empty: there is none
  std::string cache_folder = {};  // of prepared text; empty: there is none
  bool operator==(const TaskLaunch&) const = default;
};

/// Throws nlohmann::json::exception when a text in it is not UTF-8.
std::string to_text(const TaskLaunch& launch);

/// Reads the file of this attempt, or the file under its former name. Throws std::runtime_error that names the file and
/// what is wrong.
TaskLaunch read_task_launch(const std::filesystem::path& attempt_folder);

}  // namespace agent::protocol
