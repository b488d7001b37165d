#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/event.h"

namespace runtime::on_slurm {

/// The exit code of a batch script whose health check failed, so that no rank was started.
inline constexpr int kUnfitExit = 96;

/// The nodes that a job's log says a check failed on, each once, as facts about that attempt.
std::vector<core::EventBody> unfit_nodes(std::string_view log, core::AttemptNumber attempt);
/// The same of the log of the attempt in this folder. Of a log that is missing or can't be read: none.
std::vector<core::EventBody> unfit_nodes_of(const std::filesystem::path& attempt_folder, core::AttemptNumber attempt);

}  // namespace runtime::on_slurm
