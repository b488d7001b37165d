#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "executors/executor.h"

namespace runtime::on_slurm {

// What musterd and muster-task tell one another through the attempt's folder, which both see.

/// <attempt>/launch.json, mode 0600: it holds the attempt's token. Throws std::system_error.
void write_launch_file(const LaunchRequest& request, bool forward_signals);

/// <attempt>/ranks/rank-<n>.json; nullopt: not there, or not readable now.
std::optional<TaskReport> read_rank_status(const std::filesystem::path& attempt_folder, core::RankNumber rank);
/// Some rank has started: the attempt did run.
bool any_rank_status(const std::filesystem::path& attempt_folder);

/// Of an array's folder: see write_set_file.
inline constexpr const char* kSetFile = "set.json";
/// The attempt folders of an array by index. Throws std::system_error.
void write_set_file(const std::filesystem::path& path, const std::vector<std::string>& attempt_folders);
/// The attempts of an array by index; a folder that is no attempt's is {}. Empty: there is no such file, or it is
/// damaged. Throws std::system_error.
std::vector<core::AttemptKey> read_set_file(const std::filesystem::path& path);

}  // namespace runtime::on_slurm
