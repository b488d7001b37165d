#pragma once

#include <filesystem>
#include <string>

#include "controller/executors/executor.h"
#include "spec/variables.h"

namespace test {

/// Attempt 1 of a job whose every rank runs a shell script in <root>/work; $ROOT is the data folder. `controller`:
/// where its agent tells what becomes of it.
inline executors::LaunchRequest script_request(const std::filesystem::path& root, core::JobId job,
                                               const std::string& script, std::size_t ranks,
                                               const std::string& controller) {
  executors::LaunchRequest request;
  request.key = {job, 1};
  request.job_name = "test";
  request.ranks_per_node = static_cast<std::uint32_t>(ranks);
  request.argv = {"/bin/sh", "-c", script};
  request.env = {{"ROOT", root.string()},
                 {spec::variable::kController, controller},
                 {spec::variable::kRankToken, "rank-token"},
                 {spec::variable::kJobId, std::to_string(job)},
                 {spec::variable::kAttempt, "1"}};
  request.working_folder = (root / "work").string();
  request.log_folder = (root / "jobs" / std::to_string(job) / "attempt-1" / "logs").string();
  return request;
}

}  // namespace test
