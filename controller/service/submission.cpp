#include "controller/service/submission.h"

#include <algorithm>
#include <map>

#include "controller/actions/launches.h"
#include "controller/common/clock.h"
#include "controller/common/tokens.h"
#include "controller/service/job_changes.h"
#include "spec/jobfile/spec.h"

namespace service {
namespace {

namespace v1 = muster::v1;
using common::Outcome;
using common::Refusal;

constexpr std::size_t kMostRequestId = 64;
constexpr const char* kLongRequestId = "request_id: want at most 64 characters";
constexpr std::size_t kMostSpecBytes = 1 << 20;
constexpr const char* kLargeSpec = "the job file is larger than 1 MiB";
constexpr int kMostSweep = core::kMostSweepJobs;

/// Returns the id that a request is known by: its own, or a new one if it has none.
std::string id_of(const std::string& request_id) {
  return request_id.empty() ? "own-" + common::new_token() : request_id;
}

std::string place_in_sweep(int index) {
  return "job " + std::to_string(index) + " of the sweep: ";
}

/// Notes which element of its sweep a job is. The sweep gets its name when it is stored.
void name_in_sweep(v1::JobSpec& spec, int index, std::uint32_t parallel) {
  spec.mutable_sweep()->clear_sweep();
  spec.mutable_sweep()->set_index(static_cast<std::uint32_t>(index));
  spec.mutable_sweep()->set_parallel(parallel);
}

}  // namespace

Outcome<v1::SubmitResponse> Submission::submit(const v1::SubmitRequest& request) {
  if (request.request_id().size() > kMostRequestId) return Refusal::invalid(kLongRequestId);
  v1::JobSpec spec = request.spec();
  spec.clear_sweep();
  const auto user = user_or_unknown(request.user());
  if (const auto refusal = judge(spec, user, request.request_id(), "")) return *refusal;
  std::string text = jobs::spec_to_text(spec);
  if (text.size() > kMostSpecBytes) return Refusal::limit(kLargeSpec);
  auto turn = parts_.partitions.take_turn({{parts_.partitions.place_of(spec), 1}}, user);
  if (const auto refusal = unless_known(std::move(turn.refusal), request.request_id())) return *refusal;
  const auto outcome =
      parts_.event_log.submit({jobs::job_submitted(spec, user), id_of(request.request_id()), std::move(text)});
  if (!outcome.ok()) return outcome.refusal();
  if (!outcome.value().already) parts_.specs.keep(outcome.value().id, std::move(spec));
  v1::SubmitResponse response;
  response.set_job_id(outcome.value().id);
  response.set_already_submitted(outcome.value().already);
  return response;
}

std::optional<Refusal> Submission::judge(v1::JobSpec& spec, const std::string& user, const std::string& request_id,
                                         const std::string& place) {
  if (const auto refusal = unless_known(parts_.partitions.admit(spec, user), request_id)) {
    return Refusal{refusal->kind, place + refusal->text};
  }
  const auto problems = problems_of(spec);
  return problems.empty() ? std::nullopt : std::optional(Refusal::invalid(place + problems));
}

std::optional<Refusal> Submission::unless_known(std::optional<Refusal> refusal, const std::string& request_id) {
  if (!refusal || request_id.empty()) return refusal;
  try {
    return parts_.store.find_request(request_id) ? std::nullopt : refusal;
  } catch (const std::exception&) {
    return refusal;
  }
}

std::string Submission::problems_of(v1::JobSpec& spec) const {
  jobfile::fill_defaults(spec);
  std::string problems;
  const auto add = [&](const std::string& problem) { problems += (problems.empty() ? "" : "\n") + problem; };
  // The meaning of "auto" here is known by now.
  const bool is_auto = spec.executor() == "auto";
  if (is_auto) spec.set_executor(parts_.executor.has_queue("auto") ? "slurm" : "local");
  for (const auto& problem : jobfile::validate(
           spec, parts_.options.check_folders ? jobfile::FileChecks::kLook : jobfile::FileChecks::kSkip)) {
    add(jobfile::to_string(problem));
  }
  if (is_auto) spec.set_executor("auto");
  for (auto& unfit : parts_.executor.unfit(actions::asked_request(spec))) {
    add(jobfile::to_string({unfit.field, unfit.value, unfit.wanted, unfit.remedy, {}}));
  }
  if (spec.executor() == "debug") {
    add("executor \"debug\": it runs where muster submit runs, without a controller; use \"auto\", \"slurm\" or "
        "\"local\"");
  }
  const auto& folder = spec.checkpoint().folder();
  if (const auto id = folder.empty() ? std::nullopt : parts_.data.job_of(folder)) {
    const auto other = parts_.event_log.job(*id);
    if (other != nullptr && other->removed_at) {
      add("checkpoint.folder \"" + folder + "\": it is in the folder of job " + std::to_string(*id) +
          ", which is deleted: " + core::removed_text(*other) + "; choose another one");
    }
  }
  for (const auto& text : spec.after()) {
    const auto dependency = core::parse_dependency(text);
    if (!dependency) {
      add("after \"" + text + "\": want succeeded:<job>, failed:<job> or ended:<job>");
    } else if (const auto other = parts_.event_log.job(dependency->job); other == nullptr) {
      add("after \"" + text + "\": there is no job " + std::to_string(dependency->job));
    } else if (other->removed_at) {
      add("after \"" + text + "\": " + core::removed_text(*other) + ", and its files with it; leave it out");
    }
  }
  return problems;
}

Outcome<v1::SubmitSweepResponse> Submission::submit_sweep(const v1::SubmitSweepRequest& request) {
  if (request.request_id().size() > kMostRequestId) return Refusal::invalid(kLongRequestId);
  if (request.specs().empty()) return Refusal::invalid("specs: a sweep of no job at all");
  if (request.specs_size() > kMostSweep) {
    return Refusal::limit("specs: a sweep of " + std::to_string(request.specs_size()) + " jobs; at most " +
                          std::to_string(kMostSweep) + ", submit it in parts");
  }
  const auto id = id_of(request.request_id());
  const auto user = user_or_unknown(request.user());
  std::vector<jobs::EventLog::Submission> submissions;
  std::map<int, v1::JobSpec> specs;  // of jobs that start soon, by their place
  submissions.reserve(static_cast<std::size_t>(request.specs_size()));
  std::map<std::string, std::uint32_t> places;
  for (int i = 0; i < request.specs_size(); ++i) {
    v1::JobSpec spec = request.specs(i);
    name_in_sweep(spec, i, request.parallel());
    if (!spec.has_recipe() && spec.environment() != "clean" && spec.submitted_env().empty()) {
      *spec.mutable_submitted_env() = request.submitted_env();
    }
    if (const auto refusal = judge(spec, user, request.request_id(), place_in_sweep(i))) return *refusal;
    ++places[parts_.partitions.place_of(spec)];
    std::string text = jobs::spec_to_text(spec);
    if (text.size() > kMostSpecBytes) return Refusal::limit(kLargeSpec);
    submissions.push_back({jobs::job_submitted(spec, user), i == 0 ? id : "", std::move(text)});
    if (jobs::SpecCache::is_kept(spec)) specs.emplace(i, std::move(spec));
  }
  auto turn = parts_.partitions.take_turn(places, user);
  if (const auto refusal = unless_known(std::move(turn.refusal), request.request_id())) return *refusal;
  const auto outcome = parts_.event_log.submit_sweep(std::move(submissions));
  if (!outcome.ok()) return outcome.refusal();
  v1::SubmitSweepResponse response;
  const auto first = outcome.value().id;
  response.set_sweep(jobs::sweep_name(first));
  response.set_already_submitted(outcome.value().already);
  if (!outcome.value().already) {
    for (auto& [i, spec] : specs) parts_.specs.keep(first + i, std::move(spec));
    response.mutable_job_ids()->Reserve(request.specs_size());
    for (int i = 0; i < request.specs_size(); ++i) response.add_job_ids(first + i);
    return response;
  }
  const auto job = parts_.event_log.job(first);
  if (job == nullptr || job->sweep.sweep != response.sweep()) {
    return Refusal::invalid("request_id: it was used for job " + std::to_string(first) +
                            ", which is no sweep; choose another one");
  }
  for (const auto left : jobs_of(parts_.store, response.sweep())) response.add_job_ids(left);
  if (response.job_ids().empty()) {
    return Refusal::invalid("request_id: it was used for sweep " + response.sweep() +
                            ", whose jobs are all removed; choose another one to submit it again");
  }
  return response;
}

Outcome<std::vector<executors::LaunchRequest>> Submission::planned(const v1::PlanScriptRequest& request) {
  if (request.specs().empty()) return Refusal::invalid("specs: no job at all");
  if (request.specs_size() > (request.is_sweep() ? kMostSweep : 1)) {
    return Refusal::limit("specs: " + std::to_string(request.specs_size()) + " jobs are too many");
  }
  std::vector<executors::LaunchRequest> requests;
  const auto first = parts_.event_log.next_job_id();
  const auto user = user_or_unknown(request.user());
  for (int i = 0; i < request.specs_size(); ++i) {
    v1::JobSpec spec = request.specs(i);
    if (request.is_sweep()) name_in_sweep(spec, i, request.parallel());
    if (const auto refusal = judge(spec, user, "", request.is_sweep() ? place_in_sweep(i) : "")) return *refusal;
    auto planned = actions::launch_request(
        spec, {first + i, 1}, {parts_.data, parts_.options.worker_program, "the controller", parts_.secret});
    if (request.is_sweep() && goes_together(spec, user)) planned.sweep = jobs::sweep_name(first);
    parts_.partitions.equip(planned);
    requests.push_back(std::move(planned));
  }
  parts_.runner.leave_out_lost_nodes(requests);
  return requests;
}

bool Submission::goes_together(const v1::JobSpec& spec, const std::string& user) const {
  core::Job job;
  job.user = user;
  job.sweep = {"any", 0, spec.sweep().parallel()};
  return admission::limits_of(job, spec, parts_.partitions.policies().get()).empty();
}

Refusal Submission::no_script(const executors::LaunchRequest& request) const {
  const auto names = parts_.executor.names();
  const bool has_slurm = std::ranges::find(names, "slurm") != names.end();
  if (request.executor != "local") return common::no_slurm(parts_.options.why_no_slurm);
  return {Refusal::Kind::kInvalid,
          std::string("executor \"local\": its ranks are started as processes of the controller's machine, without a "
                      "script of Slurm's") +
              (has_slurm ? "; use \"slurm\" to see one" : "")};
}

Outcome<v1::PlanScriptResponse> Submission::plan_script(const v1::PlanScriptRequest& request) {
  const auto scripts = scripts_of(request);
  if (!scripts.ok()) return scripts.refusal();
  v1::PlanScriptResponse response;
  for (const auto& script : scripts.value().texts) response.add_scripts(script);
  if (request.is_sweep()) response.set_one_by_one(scripts.value().one_by_one);
  return response;
}

Outcome<Submission::Scripts> Submission::scripts_of(const v1::PlanScriptRequest& asked) {
  const auto requests = planned(asked);
  if (!requests.ok()) return requests.refusal();
  Scripts scripts;
  const auto add = [&](std::vector<executors::LaunchRequest>& some) {
    if (some.empty()) return;
    for (auto& script : parts_.executor.scripts(some)) scripts.texts.push_back(std::move(script));
    some.clear();
  };
  std::vector<executors::LaunchRequest> batch, alone;
  for (const auto& request : requests.value()) {
    (request.sweep.empty() ? alone : batch).push_back(request);
    if (batch.size() == actions::ActionRunner::kLargestBatch) add(batch);
  }
  scripts.one_by_one = static_cast<std::uint32_t>(alone.size());
  add(batch);
  add(alone);
  if (scripts.texts.empty()) return no_script(requests.value().front());
  return scripts;
}

Outcome<v1::CheckScriptResponse> Submission::check_script(const v1::PlanScriptRequest& request) {
  const auto scripts = scripts_of(request);
  if (!scripts.ok()) return scripts.refusal();
  // The first of several scripts that is refused has the word, else the first of all.
  std::optional<executors::ScriptCheck> word;
  for (const auto& script : scripts.value().texts) {
    auto check = parts_.executor.check_script(script);
    if (!check.unreachable.empty()) return Refusal::unavailable("Slurm: " + check.unreachable);
    if (!word || !check.refusal.empty()) word = std::move(check);
    if (!word->refusal.empty()) break;
  }
  v1::CheckScriptResponse response;
  response.set_refusal(word->refusal);
  if (word->start && is_foreseen(*word->start, parts_.clock.wall()))
    response.set_expected_start(common::time_text(word->start));
  response.set_partition(word->partition);
  response.set_nodes(word->nodes);
  return response;
}

}  // namespace service
