#include "controller/actions/launch_plan.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "agent/environment/rank_variables.h"
#include "controller/admission/admission.h"
#include "controller/common/tokens.h"
#include "controller/jobs/progress_watch.h"
#include "controller/jobs/specs.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/run_file.h"
#include "spec/jobfile/sbatch_words.h"
#include "spec/jobfile/spec.h"
#include "spec/variables.h"

namespace actions {
namespace {

namespace variable = spec::variable;

/// The text of the run file; empty: the job is no recipe.
std::string run_text(const muster::v1::JobSpec& spec, core::JobId job, const common::DataFolder& data) {
  return spec.has_recipe() ? run_file(spec, job, data).dump(2) + "\n" : std::string();
}

/// The folder of prepared text that muster makes; empty: the job names its own, or needs none.
std::string cache_folder(const muster::v1::JobSpec& spec, const common::DataFolder& data) {
  const bool makes = spec.has_recipe() && !spec.recipe().values().contains("data.cache_folder");
  return makes ? data.cache().string() : std::string();
}

}  // namespace

nlohmann::ordered_json run_file(const muster::v1::JobSpec& spec, core::JobId job, const common::DataFolder& data) {
  return jobfile::run_file(spec, jobs::checkpoint_folder(spec, job, data).string(), data.cache().string());
}

std::filesystem::path fence_folder(const muster::v1::JobSpec& spec, core::JobId job, const common::DataFolder& data) {
  const bool ours = spec.checkpoint().folder().empty();
  return spec.has_recipe() || ours ? jobs::checkpoint_folder(spec, job, data) : std::filesystem::path();
}

executors::SlurmWishes slurm_wishes(const muster::v1::JobSpec& spec) {
  const auto& from = spec.slurm();
  executors::SlurmWishes to;
  to.options = jobfile::sbatch_options(spec);
  to.output = jobfile::slurm_text(spec, "output");
  to.array_parallelism = static_cast<std::uint32_t>(jobfile::slurm_whole(spec, "array_parallelism"));
  to.setup.assign(from.setup().begin(), from.setup().end());
  to.teardown.assign(from.teardown().begin(), from.teardown().end());
  to.srun_args.assign(from.srun_args().begin(), from.srun_args().end());
  to.health_check = executors::own_check(jobfile::slurm_text(spec, "health_check"));
  return to;
}

spec::ReportSources report_sources(const muster::v1::ReportSources& from) {
  return {from.checkpoints(), {from.log().begin(), from.log().end()}, from.tensorboard()};
}

executors::LaunchRequest asked_request(const muster::v1::JobSpec& spec) {
  const auto& resources = spec.resources();
  executors::LaunchRequest request;
  request.job_name = spec.name();
  request.nodes = resources.nodes();
  request.ranks_per_node = resources.ranks_per_node();
  request.wish = admission::wish_of(spec);
  request.time_limit = core::Millis(resources.time_limit_ms());
  request.stop_grace = core::Millis(resources.stop_grace_ms());
  request.executor = spec.executor().empty() ? "auto" : spec.executor();
  request.is_command = spec.has_command();
  request.own_launcher = spec.launcher() == "own";
  if (jobfile::is_batch(spec)) {
    request.batch = {.of_node = resources.ranks_per_node(),
                     .cpus_of_task = resources.cpus_per_rank(),
                     .partition = jobfile::slurm_text(spec, "partition")};
  }
  request.slurm = slurm_wishes(spec);
  for (const auto& [name, value] : spec.env()) request.env[name] = value;
  return request;
}

executors::LaunchRequest launch_request(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                                        const LaunchSettings& settings) {
  auto request = asked_request(spec);
  const auto of_user = std::exchange(request.env, {});  // set last
  request.key = key;
  request.attempt_folder = settings.data.attempt(key).string();
  request.fence_folder = fence_folder(spec, key.job, settings.data).string();
  request.sweep = spec.sweep().sweep();
  request.report = report_sources(spec.report());
  request.working_folder = spec.working_folder().empty() ? settings.data.job(key.job).string() : spec.working_folder();
  request.log_folder = settings.data.logs(key).string();
  const auto run_path = settings.data.run_file(key).string();
  if (spec.has_command()) {
    request.argv.assign(spec.command().argv().begin(), spec.command().argv().end());
  } else {
    request.argv = {settings.worker_program.string(), "--run-file", run_path};
    request.env[variable::kRunFile] = run_path;
  }
  request.base_env = agent::environment::login_environment();
  for (const auto& [name, value] : spec.submitted_env()) request.base_env[name] = value;
  if (spec.has_command() && !request.own_launcher && !request.batch) {
    request.env.merge(agent::environment::torchelastic_variables(key.job, key.number, spec.requeue().max_failed()));
  }
  // Each attempt is a Slurm job of its own, which Slurm has never restarted.
  if (request.batch && key.number > 1) request.env["SLURM_RESTART_COUNT"] = std::to_string(key.number - 1);
  if (request.batch && spec.env().contains("SLURM_ARRAY_TASK_ID")) {
    // The tasks of a script's array are one sweep, whose jobs have numbers in a row.
    request.env["SLURM_ARRAY_JOB_ID"] = std::to_string(key.job - spec.sweep().index());
  }
  for (const auto& [name, value] : of_user) request.env[name] = value;
  request.env[variable::kController] = settings.controller_address;
  request.env[variable::kControllerFile] = settings.data.ready_file().string();
  request.env[variable::kRankToken] = common::rank_token(settings.secret, key.job, key.number);
  request.env[variable::kJobId] = std::to_string(key.job);
  request.env[variable::kAttempt] = std::to_string(key.number);
  request.env[variable::kAttemptFolder] = request.attempt_folder;
  request.env[variable::kCheckpointFolder] = jobs::checkpoint_folder(spec, key.job, settings.data).string();
  return request;
}

void prepare_folders(const muster::v1::JobSpec& spec, const core::AttemptKey& key, const LaunchSettings& settings) {
  const auto& data = settings.data;
  const auto folder = fence_folder(spec, key.job, data);
  const auto fencing = agent::watch::make_start({{key.job, key.number},
                                                 data.attempt(key),
                                                 data.logs(key),
                                                 folder,
                                                 data.run_file(key),
                                                 run_text(spec, key.job, data),
                                                 cache_folder(spec, data)});
  if (fencing == agent::watch::Fencing::kRaisedAgain) {
    spdlog::warn(
        "job {} attempt {}: a rank of an older attempt holds the checkpoint folder {}; it was fenced all the "
        "same",
        key.job, key.number, folder.string());
  }
  if (spec.has_command()) jobs::note_checkpoint_files(spec, key, data);
}

bool may_prepare_later(const muster::v1::JobSpec& spec, const core::AttemptKey& key) {
  return key.number == 1 && spec.checkpoint().folder().empty();
}

void prepare_later(const muster::v1::JobSpec& spec, const LaunchSettings& settings, executors::LaunchRequest& request) {
  request.prepared = false;
  request.run_file = run_text(spec, request.key.job, settings.data);
  request.cache_folder = cache_folder(spec, settings.data);
}

}  // namespace actions
