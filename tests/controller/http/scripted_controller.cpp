#include "tests/controller/http/scripted_controller.h"

#include <algorithm>
#include <fstream>

#include "controller/admission/admission.h"
#include "controller/core/apply.h"
#include "controller/service/standing.h"
#include "tests/job_series.h"

using common::Outcome;
using common::Refusal;
namespace v1 = muster::v1;

namespace {

constexpr const char* kNow = "2026-03-01T10:00:00.000Z";

Refusal no_such_job(core::JobId id) {
  return {Refusal::Kind::kNotFound, "there is no job " + std::to_string(id) + "; `muster list` shows all"};
}

bool is_ended(const v1::Job& job) {
  return job.state() == "succeeded" || job.state() == "failed" || job.state() == "cancelled";
}

/// The part of the job that the controller's explanations read.
core::Job core_job(const v1::Job& from) {
  core::Job job;
  job.id = from.id();
  job.state = core::job_state_from_string(from.state()).value_or(core::JobState::kPending);
  job.reason = from.reason();
  job.held = !from.held_by().empty();
  job.held_by = from.held_by();
  job.is_command = from.kind() == "command";
  job.last_checkpoint_step = from.last_checkpoint_step();
  for (const auto& each : from.attempts()) {
    auto& attempt = job.attempts.emplace_back();
    attempt.number = each.number();
    if (!each.started_at().empty()) attempt.started_at = core::Time{};
    if (!each.scheduler_job().empty()) attempt.queued_at = core::Time{};
    if (each.has_rank()) attempt.culprit = each.rank();
    attempt.cause = core::cause_from_string(each.cause()).value_or(core::Cause::kNone);
  }
  return job;
}

store::MetricRow row_of(core::JobId job, const v1::Metric& metric) {
  store::MetricRow row{
      .job = job, .attempt = metric.attempt(), .step = metric.step(), .at_ms = metric.at_ms(), .values = {}};
  if (metric.has_step_ms()) row.step_ms = metric.step_ms();
  if (metric.has_memory_peak_bytes()) row.memory_peak_bytes = metric.memory_peak_bytes();
  if (metric.has_bytes_communicated()) row.bytes_communicated = metric.bytes_communicated();
  for (const auto& [name, value] : metric.series()) row.values.push_back({name, value});
  std::ranges::sort(row.values, {}, &store::SeriesValue::series);
  return row;
}

/// The wait that Admission tells of a job that a person holds, or that waits for its backoff.
std::optional<common::Wait> wait_of(const core::Job& job) {
  if (auto wait = admission::wait_for_release(job)) return wait;
  if (job.state != core::JobState::kWaiting) return std::nullopt;
  return admission::wait_for_backoff(job);
}

/// Adds the real controller's explanations and controls to the job, except those that the test has scripted.
v1::Job explained(v1::Job job) {
  auto core = core_job(job);
  if (job.status().ends_with(", suspected") && !core.attempts.empty())
    core.attempts.back().suspicion = core::Suspicion::kHung;
  service::StandingFacts facts{core};
  facts.wait = wait_of(core);
  auto standing = service::standing_of(facts);
  if (!job.action().empty() && !core.held) standing.action = job.action();
  standing.scheduler_reason = core.held ? "" : job.scheduler_reason();
  if (core.held && standing.status == "held") standing.reason = "held by " + core.held_by + " until released";
  service::fill_standing(standing, job);
  *job.mutable_controls() = service::controls_of(core);
  const auto& resources = job.spec().resources();
  if (job.ranks_total() == 0) job.set_ranks_total(resources.nodes() * resources.ranks_per_node());
  for (auto& rank : *job.mutable_ranks()) {
    const auto attempt = std::ranges::find(core.attempts, rank.attempt(), &core::Attempt::number);
    if (attempt == core.attempts.end()) continue;
    if (attempt->ranks.size() <= rank.rank()) attempt->ranks.resize(rank.rank() + 1);
    if (rank.has_signal()) attempt->ranks[rank.rank()].exit = core::ExitStatus{0, rank.signal()};
    rank.set_stopped_by_muster(core::is_stopped_by_muster(*attempt, rank.rank()));
  }
  return job;
}

}  // namespace

std::unique_lock<std::mutex> ScriptedController::lock() {
  std::unique_lock held(mutex_);
  released_.wait(held, [this] { return !held_; });
  return held;
}

void ScriptedController::changed() {
  ++changes_;
  change_.notify_all();
}

void ScriptedController::hang() {
  const std::lock_guard held(mutex_);
  held_ = true;
}

void ScriptedController::let_go() {
  const std::lock_guard held(mutex_);
  held_ = false;
  released_.notify_all();
}

void ScriptedController::put(const v1::Job& job) {
  const auto held = lock();
  jobs_[job.id()] = job;
  changed();
}

std::int64_t ScriptedController::store_event(const std::string& type, const std::string& text, v1::Job& job) {
  job.set_version(job.version() + 1);
  v1::Event event;
  event.set_id(events_.empty() ? 1 : events_.back().id() + 1);
  event.set_job_id(job.id());
  event.set_version(job.version());
  event.set_at(kNow);
  event.set_type(type);
  event.set_attempt(static_cast<std::uint32_t>(job.attempts_size()));
  event.set_job_state(job.state());
  event.set_text(text);
  event.set_payload("{}");
  events_.push_back(event);
  changed();
  return event.id();
}

std::int64_t ScriptedController::add_event(core::JobId job, const std::string& type, const std::string& text) {
  const auto held = lock();
  return store_event(type, text, jobs_.at(job));
}

void ScriptedController::add_metric(core::JobId id, const v1::Metric& metric) {
  const auto held = lock();
  metrics_[id].push_back(metric);
  const auto row = row_of(id, metric);
  curves_.add_metrics({&row, 1}, {});
  auto& job = jobs_.at(id);
  job.set_step(metric.step());
  if (metric.has_loss()) job.set_loss(metric.loss());
  if (metric.has_tokens_per_s()) job.set_tokens_per_s(metric.tokens_per_s());
  test::note_series(job, metric);
  changed();
}

void ScriptedController::append_log(core::JobId job, core::AttemptNumber attempt, core::RankNumber rank,
                                    const std::string& text) {
  std::ofstream(logs_ / (std::to_string(job) + "-" + std::to_string(attempt) + "-" + std::to_string(rank)),
                std::ios::app | std::ios::binary)
      << text;
}

std::vector<v1::SubmitSweepRequest> ScriptedController::submissions() {
  const auto held = lock();
  return submissions_;
}

void ScriptedController::refuse_submissions(const Refusal& refusal) {
  const auto held = lock();
  refusal_ = refusal;
}

Outcome<v1::SubmitResponse> ScriptedController::submit(const v1::SubmitRequest& request) {
  v1::SubmitSweepRequest one;
  *one.add_specs() = request.spec();
  one.set_request_id(request.request_id());
  one.set_user(request.user());
  const auto answer = submit_sweep(one);
  if (!answer.ok()) return answer.refusal();
  v1::SubmitResponse response;
  response.set_job_id(answer.value().job_ids(0));
  response.set_already_submitted(answer.value().already_submitted());
  return response;
}

Outcome<v1::SubmitSweepResponse> ScriptedController::submit_sweep(const v1::SubmitSweepRequest& request) {
  const auto held = lock();
  if (refusal_) return *refusal_;
  const auto next = jobs_.empty() ? 1 : jobs_.rbegin()->first + 1;
  const bool already = !request.request_id().empty() && requests_.contains(request.request_id());
  const auto first = already ? requests_[request.request_id()] : next;
  v1::SubmitSweepResponse response;
  response.set_sweep("s" + std::to_string(first));
  response.set_already_submitted(already);
  for (int i = 0; i < request.specs_size(); ++i) response.add_job_ids(first + i);
  if (already) return response;
  for (int i = 0; i < request.specs_size(); ++i) {
    auto& job = jobs_[first + i];
    job.set_id(first + i);
    job.set_name(request.specs(i).name());
    job.set_state("pending");
    job.set_user(request.user());
    *job.mutable_spec() = request.specs(i);
    if (request.specs(i).has_sweep()) job.mutable_sweep()->set_sweep(response.sweep());
  }
  if (!request.request_id().empty()) requests_[request.request_id()] = first;
  submissions_.push_back(request);
  changed();
  return response;
}

Outcome<v1::ChangeSweepResponse> ScriptedController::change_sweep(const v1::ChangeSweepRequest& request) {
  v1::ChangeSweepResponse response;
  v1::ListRequest wanted;
  wanted.set_sweep(request.sweep());
  const auto listed = list(wanted);
  for (const auto& job : listed.jobs()) {
    auto changed = request.change() == v1::SWEEP_CHANGE_CANCEL    ? cancel(job.id(), request.user())
                   : request.change() == v1::SWEEP_CHANGE_REQUEUE ? requeue(job.id(), request.user())
                   : request.change() == v1::SWEEP_CHANGE_HOLD    ? hold(job.id(), request.user())
                                                                  : release(job.id(), request.user());
    if (changed.ok()) *response.add_jobs() = changed.value();
  }
  if (response.jobs().empty()) return Refusal::not_found("there is no sweep " + request.sweep());
  return response;
}

Outcome<v1::Job> ScriptedController::set_time_limit(core::JobId id, core::Millis limit, const std::string& user) {
  const auto held = lock();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return no_such_job(id);
  found->second.set_time_limit_ms(limit.count());
  store_event("time_limit_changed", "time limit changed by " + user, found->second);
  return explained(found->second);
}

Outcome<v1::RemoveResponse> ScriptedController::remove(const v1::RemoveRequest& request) {
  const auto held = lock();
  v1::RemoveResponse response;
  for (const auto id : request.job_ids()) {
    const auto found = jobs_.find(id);
    if (found != jobs_.end() && is_ended(found->second)) {
      auto& removed = *response.add_removed();
      removed.set_job_id(id);
      removed.set_name(found->second.name());
      removed.set_state(found->second.state());
      if (!request.dry_run()) jobs_.erase(found);
      continue;
    }
    auto& refused = *response.add_refused();
    refused.set_job_id(id);
    refused.set_is_gone(found == jobs_.end());
    refused.set_why("job " + std::to_string(id) + (found == jobs_.end() ? " does not exist" : " has not ended"));
  }
  return response;
}

v1::ListResponse ScriptedController::list(const v1::ListRequest& request) {
  const auto held = lock();
  v1::ListResponse out;
  const auto wanted = [&](const v1::Job& job) {
    if (!request.sweep().empty() && job.sweep().sweep() != request.sweep()) return false;
    const auto& ids = request.job_ids();
    if (!ids.empty() && std::find(ids.begin(), ids.end(), job.id()) == ids.end()) return false;
    return request.states().empty() ||
           std::find(request.states().begin(), request.states().end(), job.state()) != request.states().end();
  };
  std::int64_t total = 0;
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    if (!wanted(it->second)) continue;
    ++total;
    if (request.before_id() != 0 && it->first >= request.before_id()) continue;
    if (out.jobs_size() == static_cast<int>(request.limit() ? request.limit() : 100)) continue;
    v1::Job& job = *out.add_jobs();
    job = explained(it->second);
    job.clear_controls();
    job.clear_spec();
    job.clear_ranks();
    while (job.attempts_size() > 1) job.mutable_attempts()->DeleteSubrange(0, 1);
  }
  out.set_total(total);
  return out;
}

Outcome<v1::Job> ScriptedController::get(core::JobId id) {
  const auto held = lock();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return no_such_job(id);
  return explained(found->second);
}

Outcome<v1::Job> ScriptedController::cancel(core::JobId id, const std::string& user) {
  const auto held = lock();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return no_such_job(id);
  v1::Job& job = found->second;
  if (is_ended(job))
    return Refusal{Refusal::Kind::kWrongState, "job " + std::to_string(id) + " has ended already: " + job.state()};
  job.set_state("stopping");
  job.set_reason("cancelled by " + user + "; its ranks are stopping");
  store_event("cancel_requested", "cancelled by " + user, job);
  return explained(job);
}

Outcome<v1::Job> ScriptedController::hold(core::JobId id, const std::string& user) {
  const auto held = lock();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return no_such_job(id);
  found->second.set_held_by(user);
  store_event("hold_requested", "held by " + user, found->second);
  return explained(found->second);
}

Outcome<v1::Job> ScriptedController::release(core::JobId id, const std::string& user) {
  const auto held = lock();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return no_such_job(id);
  found->second.clear_held_by();
  store_event("release_requested", "released by " + user, found->second);
  return explained(found->second);
}

void ScriptedController::put_stacks(const v1::StacksView& view) {
  const auto held = lock();
  stacks_[view.job_id()] = view;
}

Outcome<v1::StacksView> ScriptedController::stacks(const v1::StacksRequest& request) {
  const auto held = lock();
  const auto job = jobs_.find(request.job_id());
  if (job == jobs_.end()) return no_such_job(request.job_id());
  if (request.ask() && job->second.state() != "running") return Refusal::wrong_state("no rank can give its stack");
  v1::StacksView view;
  view.set_job_id(request.job_id());
  view.set_attempt(request.attempt());
  if (const auto found = stacks_.find(request.job_id()); found != stacks_.end()) view = found->second;
  for (auto& rank : *view.mutable_ranks()) rank.clear_text();
  return view;
}

std::string ScriptedController::stack_text(const core::AttemptKey& attempt, std::uint64_t, core::RankNumber rank) {
  const auto held = lock();
  const auto found = stacks_.find(attempt.job);
  const bool known = found != stacks_.end() && rank < static_cast<core::RankNumber>(found->second.ranks_size());
  return known ? found->second.ranks(static_cast<int>(rank)).text() : std::string();
}

Outcome<v1::WhyResponse> ScriptedController::why(core::JobId id) {
  const auto held = lock();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return no_such_job(id);
  v1::WhyResponse response;
  response.set_job_id(id);
  response.set_state(found->second.state());
  service::fill_standing(service::standing_of({core_job(found->second)}), response);
  return response;
}

Outcome<v1::Job> ScriptedController::requeue(core::JobId id, const std::string& user) {
  const auto held = lock();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return no_such_job(id);
  v1::Job& job = found->second;
  if (job.state() == "succeeded" || job.state() == "cancelled")
    return Refusal{Refusal::Kind::kWrongState, "job " + std::to_string(id) + " is " + job.state() + " for good"};
  job.set_state("waiting");
  job.set_reason("requeued by " + user);
  store_event("requeue_requested", "requeued by " + user, job);
  return explained(job);
}

std::vector<v1::Event> ScriptedController::events(core::JobId job, std::int64_t after_id, std::uint32_t limit) {
  const auto held = lock();
  std::vector<v1::Event> out;
  for (const auto& event : events_)
    if (event.id() > after_id && (job == 0 || event.job_id() == job) && out.size() < limit) out.push_back(event);
  return out;
}

store::Totals ScriptedController::totals(std::int64_t after_event, std::uint32_t most_events) {
  const auto held = lock();
  store::Totals totals;
  for (const auto& [id, job] : jobs_) {
    ++totals.jobs[job.state()];
    for (const auto& attempt : job.attempts()) {
      if (attempt.state() == "ended") ++totals.attempts_ended[attempt.cause()];
    }
  }
  totals.last_event = after_event;
  for (const auto& event : events_) {
    if (event.id() <= after_event || most_events == 0) continue;
    --most_events;
    ++totals.events[event.type()];
    totals.last_event = event.id();
  }
  return totals;
}

std::int64_t ScriptedController::last_event_id() {
  const auto held = lock();
  return events_.empty() ? 0 : events_.back().id();
}

std::vector<v1::Metric> ScriptedController::metrics(core::JobId id, core::AttemptNumber attempt,
                                                    core::AttemptNumber after_attempt, core::Step after_step,
                                                    std::uint32_t limit) {
  const auto held = lock();
  std::vector<v1::Metric> out;
  for (const auto& metric : metrics_[id]) {
    if (attempt != 0 && metric.attempt() != attempt) continue;
    if (std::pair<std::int64_t, std::int64_t>(metric.attempt(), metric.step()) <=
        std::pair<std::int64_t, std::int64_t>(after_attempt, after_step))
      continue;
    if (out.size() < limit) out.push_back(metric);
  }
  return out;
}

store::Thinned ScriptedController::thinned(const store::ThinRequest& request) {
  const auto held = lock();
  return curves_.thinned(request);
}

std::string ScriptedController::log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank) {
  const auto held = lock();
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || attempt > static_cast<core::AttemptNumber>(found->second.attempts_size())) return {};
  return logs_ / (std::to_string(id) + "-" + std::to_string(attempt) + "-" + std::to_string(rank));
}

void ScriptedController::set_problems(const std::string& store, const std::string& scheduler) {
  const auto held = lock();
  store_problem_ = store;
  scheduler_problem_ = scheduler;
}

v1::StatusResponse ScriptedController::status() {
  const auto held = lock();
  v1::StatusResponse out;
  out.set_version("0.1.0");
  out.set_started_at(kNow);
  out.set_pid(1);
  out.set_data_folder("/var/lib/muster");
  out.set_schema_version(1);
  out.set_data_free_bytes(50LL << 30);
  out.set_executor("local");
  out.set_jobs_total(static_cast<std::int64_t>(jobs_.size()));
  out.set_events_total(static_cast<std::int64_t>(events_.size()));
  out.set_store_problem(store_problem_);
  out.set_scheduler_problem(scheduler_problem_);
  return out;
}

std::uint64_t ScriptedController::wait_change(core::JobId, std::uint64_t seen, core::Millis timeout) {
  auto held = lock();
  change_.wait_for(held, timeout, [&] { return changes_ > seen; });
  return changes_;
}
