#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "agent/watch/agent_files.h"
#include "controller/common/data_folder.h"
#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "muster/v1/job.pb.h"
#include "spec/report_keys.h"

namespace actions {

/// Settings that all launches of this controller have in common.
struct LaunchSettings {
  common::DataFolder data{""};
  std::filesystem::path worker_program;
  std::string controller_address;  // host:port, for ranks
  std::string secret;              // of the store: rank tokens derive from it
};

/// The file that muster-worker reads, format 1: name, recipe, model, data, train, checkpoint, fsdp; values that the
/// spec leaves out are left out, but for the folders.
nlohmann::ordered_json run_file(const muster::v1::JobSpec& spec, core::JobId job, const common::DataFolder& data);

executors::SlurmWishes slurm_wishes(const muster::v1::JobSpec& spec);
spec::ReportSources report_sources(const muster::v1::ReportSources& from);

/// Pure: what a job asks for, for Executor::unfit(): executor, resources, the scheduler's wishes and the user's own
/// variables. A sweep asks for it ten thousand times.
executors::LaunchRequest asked_request(const muster::v1::JobSpec& spec);

/// Pure: the same for the same attempt, however often it is asked for.
executors::LaunchRequest launch_request(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                                        const LaunchSettings& settings);

/// Makes everything that must lie on disk before ranks start: folders, the raised fence, run.json. May be repeated.
/// Throws std::system_error.
void prepare_folders(const muster::v1::JobSpec& spec, const core::AttemptKey& key, const LaunchSettings& settings);

/// True if prepare_folders() may wait until the attempt starts: for a first attempt whose checkpoint folder is its
/// job's own. Nobody else can write there. A folder that a job file names may be another job's, which the fence must
/// tell before it starts (Launches::owner_of_folder). An older attempt must be fenced before the next is handed over.
bool may_prepare_later(const muster::v1::JobSpec& spec, const core::AttemptKey& key);
/// Leaves prepare_folders() to the executor.
void prepare_later(const muster::v1::JobSpec& spec, const LaunchSettings& settings, executors::LaunchRequest& request);

/// Where the fence of a job is raised; empty for a checkpoint folder that a command names itself.
std::filesystem::path fence_folder(const muster::v1::JobSpec& spec, core::JobId job, const common::DataFolder& data);

using agent::watch::read_fence;

}  // namespace actions
