#include "controller/actions/launches.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

#include "agent/environment/rank_variables.h"
#include "agent/watch/agent_files.h"
#include "controller/common/changes.h"
#include "controller/common/tokens.h"
#include "controller/jobs/progress_watch.h"
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

/// Where the fence of a job is raised; empty for a checkpoint folder that a command names itself.
std::filesystem::path fence_folder(const muster::v1::JobSpec& spec, core::JobId job, const common::DataFolder& data) {
  const bool ours = spec.checkpoint().folder().empty();
  return spec.has_recipe() || ours ? jobs::checkpoint_folder(spec, job, data) : std::filesystem::path();
}

/// Makes everything that must lie on disk before ranks start: folders, the raised fence, run.json. May be repeated.
/// Throws std::system_error.
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

/// True if prepare_folders() may wait until the attempt starts: for a first attempt whose checkpoint folder is its
/// job's own. Nobody else can write there. A folder that a job file names may be another job's, which the fence must
/// tell before it starts (Launches::owner_of_folder). An older attempt must be fenced before the next is handed over.
bool may_prepare_later(const muster::v1::JobSpec& spec, const core::AttemptKey& key) {
  return key.number == 1 && spec.checkpoint().folder().empty();
}

/// Leaves prepare_folders() to the executor.
void prepare_later(const muster::v1::JobSpec& spec, const LaunchSettings& settings, executors::LaunchRequest& request) {
  request.prepared = false;
  request.run_file = run_text(spec, request.key.job, settings.data);
  request.cache_folder = cache_folder(spec, settings.data);
}

// True if the folder that gave this error may take writes later.
bool may_heal(int error) {
  return error != EROFS && error != EACCES && error != EPERM && error != ENOTDIR && error != ENAMETOOLONG;
}

std::string folder_problem(const std::system_error& e) {
  const bool heals = may_heal(e.code().value());
  return std::string(e.what()) + (heals ? "" : "; make the folder writable or name another one in the job file");
}

}  // namespace

nlohmann::ordered_json run_file(const muster::v1::JobSpec& spec, core::JobId job, const common::DataFolder& data) {
  return jobfile::run_file(spec, jobs::checkpoint_folder(spec, job, data).string(), data.cache().string());
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
  const auto& report = spec.report();
  request.report = {report.checkpoints(), {report.log().begin(), report.log().end()}, report.tensorboard()};
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

void Launches::perform(const std::vector<Outbox::Row>& batch) {
  std::vector<Launch> launches;
  for (const auto& row : batch) {
    launches.push_back({row, {row.job, std::get<core::StartAttempt>(row.action).attempt}, {}, {}, {}});
  }
  try {
    for (auto& each : launches) {
      try {
        prepare(each);
      } catch (const std::exception& e) {
        each = {each.row, each.key, {}, {}, executors::LaunchLater{.why = e.what(), .unsure = each.may_be_there()}};
      }
    }
    ask(launches);
    keep(launches);
  } catch (const std::exception& e) {
    spdlog::error("job {}: a launch failed and is tried again: {}", batch.front().job, e.what());
    for (auto& each : launches) each.later = executors::LaunchLater{.why = e.what(), .unsure = true};
  }
  finish(launches);
}

void Launches::prepare(Launch& launch) {
  const auto& key = launch.key;
  const auto job = parts_.event_log.job(key.job);
  const bool upcoming = job != nullptr && core::is_upcoming(*job, key.number);
  if (job == nullptr || (!upcoming && key.number <= job->attempts.size())) return;
  if (was_stopped(key)) {
    if (is_left(key)) launch.answer = executors::LaunchLater{.why = {}, .unsure = true};
    return;
  }
  if (!upcoming || job->held) {
    if (launch.may_be_there()) launch.answer = look(key);
  } else if (!parts_.admission.has_slots(key.job)) {
    // It was held when it was judged.
    launch.answer = executors::LaunchLater{.why = {}, .pause = core::Millis(0), .unsure = launch.may_be_there()};
  } else {
    plan(*job, launch);
    if (launch.request || !launch.may_be_there()) return;
    if (auto there = look(key)) launch.answer = std::move(there);
  }
}

void Launches::plan(const core::Job& job, Launch& launch) {
  const auto& key = launch.key;
  const auto spec = parts_.specs.get(job.id);
  if (spec == nullptr) {
    launch.answer = core::AttemptLaunchFailed{key.number, "the job has no stored spec", false};
    return;
  }
  if (const auto owner = owner_of_folder(*spec, job.id)) {
    const auto other = std::to_string(*owner);
    launch.answer = executors::LaunchLater{
        "its checkpoint folder " + spec->checkpoint().folder() + " belongs to job " + other + ", which has not ended",
        executors::kTryAgainAfter,
        "It starts when job " + other + " has ended. To start it now: muster cancel " + other +
            ", or submit it with another checkpoint.folder.",
        launch.may_be_there()};
    return;
  }
  auto request = launch_request(*spec, key, settings_);
  request.time_limit = job.time_limit;  // people may have changed it
  request.share = parts_.admission.share(job.id);
  request.sweep = parts_.admission.limits(job).empty() ? job.sweep.sweep : std::string();
  parts_.partitions.equip(request);
  const bool may_wait =
      !request.sweep.empty() && may_prepare_later(*spec, key) && parts_.executor.launcher(request).prepares();
  try {
    may_wait ? prepare_later(*spec, settings_, request) : prepare_folders(*spec, key, settings_);
  } catch (const std::system_error& e) {
    const int error = e.code().value();
    if (base::lacks_room(error)) {
      launch.answer = executors::LaunchLater{e.what(), executors::kTryAgainAfter, common::make_room(error)};
    } else {
      launch.answer = core::AttemptLaunchFailed{key.number, folder_problem(e), may_heal(error)};
    }
    return;
  }
  launch.request = std::move(request);
}

std::optional<core::JobId> Launches::owner_of_folder(const muster::v1::JobSpec& spec, core::JobId job) const {
  const auto folder = fence_folder(spec, job, settings_.data);
  if (folder.empty() || spec.checkpoint().folder().empty()) return std::nullopt;
  const auto fence = agent::watch::read_fence(folder);
  if (!fence || fence->job == 0 || fence->job == job) return std::nullopt;
  // A copied folder, or one of another musterd, names a job that has a folder elsewhere here.
  const auto other = parts_.event_log.job(fence->job);
  if (other == nullptr || core::is_ended(other->state)) return std::nullopt;
  const auto its_spec = parts_.specs.get(other->id);
  if (its_spec == nullptr) return std::nullopt;
  std::error_code error;
  const bool same = std::filesystem::equivalent(fence_folder(*its_spec, other->id, settings_.data), folder, error);
  return same ? std::optional(other->id) : std::nullopt;
}

std::optional<executors::LaunchAnswer> Launches::look(const core::AttemptKey& key) {
  const auto spec = parts_.specs.get(key.job);
  if (spec == nullptr) return std::nullopt;
  const auto request = launch_request(*spec, key, settings_);
  return parts_.executor.launcher(request).withdraw(request);
}

void Launches::ask(std::vector<Launch>& launches) {
  std::vector<Launch*> asked;
  std::vector<executors::LaunchRequest> requests;
  std::vector<store::LaunchingAction> rows;
  for (auto& each : launches) {
    if (!each.request) continue;
    asked.push_back(&each);
    requests.push_back(*std::exchange(each.request, std::nullopt));
    const auto& share = requests.back().share;
    if (!each.may_be_there() || each.row.share != share) rows.push_back({each.row.id, share});
  }
  if (asked.empty()) return;
  try {
    leave_out_lost_nodes(requests);
    outbox_.set_launching(rows);
  } catch (const std::exception& e) {
    for (auto* each : asked) each->answer = executors::LaunchLater{.why = e.what(), .unsure = each->may_be_there()};
    return;
  }
  executors::AttemptLauncher* launcher = nullptr;  // of all of them: several wait in one queue
  for (const auto& request : requests) launcher = &parts_.executor.launcher(request);
  auto answers = launcher->launch_all(requests);
  for (std::size_t i = 0; i < answers.size(); ++i) asked[i]->answer = std::move(answers[i]);
}

void Launches::keep(std::vector<Launch>& launches) {
  std::vector<std::pair<core::JobId, core::EventBody>> facts;
  std::vector<Launch*> of_facts;
  for (auto& each : launches) {
    if (!each.answer) continue;
    if (auto* later = std::get_if<executors::LaunchLater>(&*each.answer)) {
      if (parts_.executor.queue_word(each.key)) later->why.clear();
      each.later = std::move(*later);
      continue;
    }
    auto* fact = std::get_if<core::AttemptLaunched>(&*each.answer);
    each.later = executors::LaunchLater{.why = {}, .unsure = fact != nullptr};  // unless it is kept
    if (fact != nullptr) fact->share = parts_.admission.share(each.key.job);
    facts.emplace_back(each.key.job, fact != nullptr
                                         ? core::EventBody(std::move(*fact))
                                         : core::EventBody(std::get<core::AttemptLaunchFailed>(*each.answer)));
    of_facts.push_back(&each);
  }
  const auto kept = parts_.event_log.keep_and_wait(std::move(facts));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    if (of_facts[i]->later->unsure && stop_unwanted(of_facts[i]->key)) continue;
    of_facts[i]->later.reset();
  }
}

// Its slots are free next. What stops it otherwise comes after those who may take them.
bool Launches::stop_unwanted(const core::AttemptKey& key) {
  const auto job = parts_.event_log.job(key.job);
  const auto spec = parts_.specs.get(key.job);
  if (job == nullptr || spec == nullptr || key.number <= job->attempts.size()) return false;
  parts_.executor.stop(key, {jobs::stop_grace(*spec, false)});
  return is_left(key);
}

bool Launches::was_stopped(const core::AttemptKey& key) const {
  const std::lock_guard lock(mutex_);
  return stopping_.contains(key);
}

bool Launches::is_left(const core::AttemptKey& key) {
  const bool is_there = parts_.executor.is_there(key);
  const std::lock_guard lock(mutex_);
  is_there ? void(stopping_.insert(key)) : void(stopping_.erase(key));
  return is_there;
}

void Launches::finish(const std::vector<Launch>& launches) {
  Outbox::Ids over, again;
  for (const auto& each : launches) {
    if (!each.later) over.push_back(each.row.id);
    if (each.later && !each.later->unsure) again.push_back(each.row.id);
  }
  const bool is_pending = outbox_.set_pending(again);
  outbox_.complete(over);
  for (const auto& [row, key, request, answer, later] : launches) {
    if (!later) {
      parts_.admission.forget(key);
    } else {
      parts_.admission.put_off(row.job, *later);
      if (later->unsure || !is_pending) {
        outbox_.pause(row, later->pause);
      } else {
        parts_.admission.settle(row.job);
      }
    }
    outbox_.end(row);
  }
}

executors::LostNodes Launches::nodes_lost_lately() const {
  executors::LostNodes nodes;
  for (const auto& event :
       parts_.store.node_losses(parts_.clock.wall() - parts_.excluded_for, executors::kMostExcluded)) {
    const auto& lost = std::get<core::NodeLost>(event.event.body);
    nodes.emplace_back(lost.node, lost.only_this_job ? event.job : 0);
  }
  return nodes;
}

void Launches::leave_out_lost_nodes(std::vector<executors::LaunchRequest>& requests) const {
  const auto lost = nodes_lost_lately();
  for (auto& request : requests) request.exclude_nodes = executors::kept_off(request.key.job, lost);
}

}  // namespace actions
