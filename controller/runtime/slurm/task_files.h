#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/executor.h"

namespace runtime::on_slurm {

// What musterd and muster-task tell one another through the attempt's folder, which both see.

/// <attempt>/launch.json, mode 0600: it holds the attempt's token. Throws std::system_error.
void write_launch_file(const LaunchRequest& request, bool forward_signals);

/// <attempt>/ranks/rank-<n>.json; nullopt: not there, or not readable now.
std::optional<TaskReport> read_rank_status(const std::filesystem::path& attempt_folder, core::RankNumber rank);
/// Some rank has started: the attempt did run.
bool any_rank_status(const std::filesystem::path& attempt_folder);

/// The attempt folders of an array by index. Throws std::system_error.
void write_set_file(const std::filesystem::path& path, const std::vector<std::string>& attempt_folders);

}  // namespace runtime::on_slurm
