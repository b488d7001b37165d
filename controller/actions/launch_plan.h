#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/data_folder.h"
#include "beside/fence.h"
#include "contract/report_sources.h"
#include "core/job.h"
#include "executors/executor.h"
#include "muster/v1/job.pb.h"

namespace actions {

/// What every launch of this controller has in common.
struct LaunchSettings {
  base::DataFolder data{""};
  std::filesystem::path worker_program;
  std::string controller_address;  // host:port, for ranks
  std::string secret;              // of the store: rank tokens derive from it
};

/// What muster-worker reads, format 1: name, recipe, model, data, train, checkpoint, fsdp; values that the spec leaves
/// out are left out, but for the folders.
nlohmann::ordered_json run_file(const muster::v1::JobSpec& spec, core::JobId job, const base::DataFolder& data);

executors::SlurmWishes slurm_wishes(const muster::v1::Slurm& from);
contract::ReportSources report_sources(const muster::v1::ReportSources& from);

/// Pure: the same for the same attempt, however often it is asked for.
executors::LaunchRequest launch_request(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                                        const LaunchSettings& settings);

/// Everything that must lie on disk before ranks start: folders, the raised fence, run.json. May be repeated. Throws
/// std::system_error.
void prepare_folders(const muster::v1::JobSpec& spec, const core::AttemptKey& key, const LaunchSettings& settings);

/// Where the fence of a job is raised; empty for a checkpoint folder that a command names itself.
std::filesystem::path fence_folder(const muster::v1::JobSpec& spec, core::JobId job, const base::DataFolder& data);

/// A checkpoint folder belongs to the attempt that `<folder>/FENCE` names ("job 7 attempt 3\n"). Ranks of an older one,
/// and of another job, find that out before they make a checkpoint valid, under a shared flock on
/// `<folder>/FENCE.lock`.
///
/// Raises it to `key`, never to an older attempt of the same job, under an exclusive flock waited for at most
/// `patience`: an old rank that hangs inside its save must not keep the next attempt from starting. Creates the folder.
/// Returns false if the lock was not to be had. The fence is raised all the same: that rank looks at it again when it
/// has published, and withdraws what it has. Throws std::system_error when the folder takes no writes.
bool raise_fence(const std::filesystem::path& folder, const core::AttemptKey& key, core::Millis patience);

using beside::read_fence;

}  // namespace actions
