#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "contract/attempt_set.h"
#include "executors/executor.h"

namespace executors::on_slurm {

// musterd's side of the files that musterd and muster-task share in the attempt's folder; contract/ has their formats.

/// <attempt>/task_launch.json, mode 0600: it holds the attempt's token. Throws std::system_error.
void write_launch_file(const LaunchRequest& request, bool forward_signals);

/// <attempt>/ranks/rank-<n>.json; nullopt: not there, or not readable now.
std::optional<TaskReport> read_rank_status(const std::filesystem::path& attempt_folder, core::RankNumber rank);
/// Some rank has started: the attempt did run.
bool any_rank_status(const std::filesystem::path& attempt_folder);

using contract::kSetFile;
/// The attempt folders of an array by index. Throws std::system_error.
void write_set_file(const std::filesystem::path& path, const std::vector<std::string>& attempt_folders);
/// The attempts of an array by index; a folder that is no attempt's is {}. Empty: there is no such file, or it is
/// damaged. Throws std::system_error.
std::vector<core::AttemptKey> read_set_file(const std::filesystem::path& path);

}  // namespace executors::on_slurm
