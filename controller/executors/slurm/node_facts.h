#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/event.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

/// The nodes whose check failed, by the job's log, each once, as facts about the attempt.
std::vector<core::EventBody> unfit_nodes(std::string_view log, core::AttemptNumber attempt);
/// The same from the log of the attempt in this folder. A log that is missing or can't be read names no node.
std::vector<core::EventBody> unfit_nodes_of(const std::filesystem::path& attempt_folder, core::AttemptNumber attempt);

/// The nodes that could not start the attempt, as facts about it: Slurm has drained them for that, since `since` by
/// slurmctld's clock. The clock has whole seconds. A node in `left_out` was drained for an earlier attempt.
std::vector<core::EventBody> nodes_without_launch(const std::vector<::slurm::Node>& nodes, core::Time since,
                                                  const std::vector<std::string>& left_out,
                                                  core::AttemptNumber attempt);

}  // namespace executors::on_slurm
