#include "service/scripts.h"

#include <algorithm>
#include <optional>

#include "base/time_text.h"
#include "service/requests.h"
#include "service/standing.h"

namespace service {

base::Outcome<std::vector<executors::LaunchRequest>> Scripts::planned(const muster::v1::PlanScriptRequest& request) {
  if (request.specs().empty()) return refuse(base::Refusal::Kind::kInvalid, "specs: no job at all");
  if (request.specs_size() > (request.is_sweep() ? kMostSweep : 1)) {
    return refuse(base::Refusal::Kind::kLimit, "specs: " + std::to_string(request.specs_size()) + " jobs are too many");
  }
  std::vector<executors::LaunchRequest> requests;
  const auto first = parts_.event_log.next_job_id();
  for (int i = 0; i < request.specs_size(); ++i) {
    muster::v1::JobSpec spec = request.specs(i);
    if (request.is_sweep()) name_in_sweep(spec, i, request.parallel());
    const std::string place = request.is_sweep() ? "job " + std::to_string(i) + " of the sweep: " : "";
    if (const auto refusal = parts_.partitions.admit(spec, user_or_unknown(request.user()))) {
      return refuse(refusal->kind, place + refusal->text);
    }
    if (const auto problems = parts_.submission.problems_of(spec); !problems.empty()) {
      return refuse(base::Refusal::Kind::kInvalid, place + problems);
    }
    auto planned = actions::launch_request(spec, {first + i, 1},
                                           {parts_.data, parts_.worker_program, "the controller", parts_.secret});
    if (request.is_sweep() && goes_together(spec, user_or_unknown(request.user())))
      planned.sweep = jobs::sweep_name(first);
    parts_.partitions.equip(planned);
    requests.push_back(std::move(planned));
  }
  parts_.runner.leave_out_lost_nodes(requests);
  return requests;
}

bool Scripts::goes_together(const muster::v1::JobSpec& spec, const std::string& user) const {
  core::Job job;
  job.user = user;
  job.sweep = {"any", 0, spec.sweep().parallel()};
  return admission::limits_of(job, spec, parts_.partitions.policies().get()).empty();
}

base::Refusal Scripts::no_script(const executors::LaunchRequest& request) const {
  const auto names = parts_.executor.names();
  const bool has_slurm = std::ranges::find(names, "slurm") != names.end();
  if (request.executor != "local") return base::no_slurm(parts_.why_no_slurm);
  return {base::Refusal::Kind::kInvalid,
          std::string("executor \"local\": its ranks are started as processes of the controller's machine, without a "
                      "script of Slurm's") +
              (has_slurm ? "; use \"slurm\" to see one" : "")};
}

base::Outcome<muster::v1::PlanScriptResponse> Scripts::plan(const muster::v1::PlanScriptRequest& request) {
  const auto requests = planned(request);
  if (!requests.ok()) return requests.refusal();
  const auto scripts = scripts_of(requests.value());
  if (!scripts.ok()) return scripts.refusal();
  muster::v1::PlanScriptResponse response;
  for (const auto& script : scripts.value()) response.add_scripts(script);
  const auto alone = std::ranges::count_if(requests.value(), [](const auto& each) { return each.sweep.empty(); });
  if (request.is_sweep()) response.set_one_by_one(static_cast<std::uint32_t>(alone));
  return response;
}

base::Outcome<std::vector<std::string>> Scripts::scripts_of(const std::vector<executors::LaunchRequest>& requests) {
  std::vector<std::string> scripts;
  const auto add = [&](std::vector<executors::LaunchRequest>& some) {
    if (some.empty()) return;
    for (auto& script : parts_.executor.scripts(some)) scripts.push_back(std::move(script));
    some.clear();
  };
  std::vector<executors::LaunchRequest> batch, alone;
  for (const auto& request : requests) {
    (request.sweep.empty() ? alone : batch).push_back(request);
    if (batch.size() == actions::ActionRunner::kLargestBatch) add(batch);
  }
  add(batch);
  add(alone);
  if (scripts.empty()) return no_script(requests.front());
  return scripts;
}

base::Outcome<muster::v1::CheckScriptResponse> Scripts::check(const muster::v1::PlanScriptRequest& request) {
  const auto requests = planned(request);
  if (!requests.ok()) return requests.refusal();
  const auto scripts = scripts_of(requests.value());
  if (!scripts.ok()) return scripts.refusal();
  // Of several the first that is refused has the word, else the first of all.
  std::optional<executors::ScriptCheck> word;
  for (const auto& script : scripts.value()) {
    auto check = parts_.executor.check_script(script);
    if (!check.unreachable.empty()) return refuse(base::Refusal::Kind::kUnavailable, "Slurm: " + check.unreachable);
    if (!word || !check.refusal.empty()) word = std::move(check);
    if (!word->refusal.empty()) break;
  }
  muster::v1::CheckScriptResponse response;
  response.set_refusal(word->refusal);
  if (word->start && is_foreseen(*word->start, parts_.clock.wall()))
    response.set_expected_start(base::time_text(word->start));
  response.set_partition(word->partition);
  response.set_nodes(word->nodes);
  return response;
}

}  // namespace service
