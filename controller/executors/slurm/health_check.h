#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/event.h"

namespace runtime::on_slurm {

/// The exit code of a batch script whose health check failed. No rank was started.
inline constexpr int kUnfitExit = 96;

/// The nodes whose check failed, by the job's log, each once, as facts about the attempt.
std::vector<core::EventBody> unfit_nodes(std::string_view log, core::AttemptNumber attempt);
/// The same from the log of the attempt in this folder. A log that is missing or can't be read names no node.
std::vector<core::EventBody> unfit_nodes_of(const std::filesystem::path& attempt_folder, core::AttemptNumber attempt);

}  // namespace runtime::on_slurm
