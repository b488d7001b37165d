#include "controller/service/views.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>

#include "controller/core/apply.h"
#include "controller/service/part_views.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/spec.h"
#include "spec/log_pattern.h"
#include "spec/series.h"

namespace service {
namespace {

namespace v1 = muster::v1;
using common::Outcome;
using common::Refusal;

constexpr std::uint32_t kListDefault = 100;
/// The most pages of rows that one list reads.
constexpr int kMostListPages = 20;

template <typename Message>
void set_exit(const std::optional<core::ExitStatus>& exit, Message& out) {
  if (!exit) return;
  if (exit->signal != 0) {
    out.set_signal(exit->signal);
  } else {
    out.set_exit_code(exit->code);
  }
}

void fill_attempt(const core::Attempt& attempt, v1::Attempt& out) {
  out.set_number(attempt.number);
  out.set_state(std::string(core::to_string(attempt.state)));
  if (attempt.cause != core::Cause::kNone) out.set_cause(std::string(core::to_string(attempt.cause)));
  out.set_reason(attempt.reason);
  out.set_started_at(common::time_text(attempt.started_at));
  out.set_ended_at(common::time_text(attempt.ended_at));
  if (attempt.resumed_from_step) out.set_resumed_from_step(*attempt.resumed_from_step);
  out.set_reason_started(attempt.reason_started);
  set_exit(attempt.culprit_exit, out);
  if (attempt.culprit) out.set_rank(*attempt.culprit);
  out.set_error(attempt.error);
  out.set_trace(attempt.trace);
  out.set_queued_at(common::time_text(attempt.queued_at));
  if (attempt.scheduler_job) out.set_scheduler_job(core::to_string(*attempt.scheduler_job));
  for (const auto& rank : attempt.ranks) {
    const bool known = std::ranges::find(out.nodes(), rank.node) != out.nodes().end();
    if (!rank.node.empty() && !known) out.add_nodes(rank.node);
  }
  fill_share(attempt, out);
}

std::string executor_of(const core::Attempt& attempt) {
  return attempt.queued_at ? "slurm" : attempt.started_at ? "local" : "";
}

/// A rank that has ended uses nothing; what it once used at most stays known.
void fill_use(const ranks::RankView& live, bool ended, core::Millis now, v1::RankUse& out) {
  out.set_at_ms(live.use->at_ms);
  out.set_memory_peak_bytes(live.use->memory_peak_bytes);
  if (ended) return;
  if (live.use->cores) out.set_cores(*live.use->cores);
  out.set_memory_bytes(live.use->memory_bytes);
  out.set_processes(live.use->processes);
  if (live.use->gpu_percent) out.set_gpu_percent(*live.use->gpu_percent);
  if (live.use->gpu_memory_bytes) out.set_gpu_memory_bytes(*live.use->gpu_memory_bytes);
  out.set_age_ms(std::max<std::int64_t>(0, (now - live.used_at).count()));
}

/// `newest`: the newest step that is stored of the job. A recipe's rank has done 0 before its first.
void fill_rank(const core::Job& job, const core::Attempt& attempt, core::RankNumber number,
               const std::optional<ranks::RankView>& live, const std::optional<store::MetricRow>& newest,
               core::Millis now, v1::Rank& out) {
  const auto& rank = attempt.ranks[number];
  out.set_rank(number);
  out.set_node(rank.node);
  out.set_pid(rank.pid);
  out.set_state(std::string(core::to_string(rank.state)));
  out.set_attempt(attempt.number);
  set_exit(rank.exit, out);
  out.set_stopped_by_muster(core::is_stopped_by_muster(attempt, number));
  if (!job.is_command) out.set_step(0);
  if (live && live->use) {
    const bool ended = rank.state == core::RankState::kExited || attempt.state == core::AttemptState::kEnded;
    fill_use(*live, ended, now, *out.mutable_use());
  }
  if (live && live->heard_at) {
    out.set_section(live->section);
    out.set_last_heartbeat_ms(std::max<std::int64_t>(0, (now - *live->heard_at).count()));
    out.set_step(live->step);
    out.set_memory_bytes(live->memory_bytes);
    out.set_memory_peak_bytes(live->memory_peak_bytes);
    out.set_step_ms(live->step_ms);
    if (live->slowness) out.set_slowness(*live->slowness);
  } else if (newest && newest->attempt == attempt.number) {
    // Ranks go from step to step together; one that this controller has not heard itself has done that one.
    out.set_step(newest->step);
    if (newest->step_ms) out.set_step_ms(*newest->step_ms);
  }
}

/// "loss", or what a program calls its training loss.
std::optional<double> training_loss(const store::MetricRow& row) {
  if (const auto loss = store::value_of(row, "loss")) return loss;
  for (const auto& value : row.values) {
    if (spec::quantity_of(value.series) == "loss" && !spec::is_held_out(value.series)) return value.value;
  }
  return std::nullopt;
}

/// `reports`: it is known to tell of its steps, even without a newest one. `last`: the last attempt, if there is one.
/// It stands where it has resumed until it makes a step; the newest one is then of an attempt before.
void fill_newest(const std::optional<store::MetricRow>& newest, bool reports, const core::Attempt* last, v1::Job& out) {
  out.set_reports(reports || newest);
  if (out.kind() == "recipe") out.set_step(0);
  if (newest) out.set_step(newest->step);
  const bool no_step = newest ? last != nullptr && newest->attempt < last->number : out.kind() == "recipe";
  if (last != nullptr && last->resumed_from_step && no_step) out.set_step(*last->resumed_from_step);
  if (!newest) return;
  if (const auto loss = training_loss(*newest)) out.set_loss(*loss);
  if (const auto tokens = store::value_of(*newest, "tokens_per_s")) out.set_tokens_per_s(*tokens);
}

void fill_series(const store::SeriesRow& row, v1::JobSeries& out) {
  out.set_name(row.series.name);
  out.set_unit(row.series.unit);
  out.set_better(std::string(spec::to_string(row.series.better)));
  out.set_over_ranks(std::string(spec::to_string(row.series.over_ranks)));
  out.set_quantity(std::string(spec::quantity_of(row.series.name)));
  out.set_held_out(spec::is_held_out(row.series.name));
  out.set_attempt(row.attempt);
  out.set_step(row.step);
  if (std::isfinite(row.value)) out.set_value(row.value);
}

/// Fills in what a job that has not ended waits for: who holds it, other jobs, a scheduler that can't be asked. Of an
/// ended job that is history.
void fill_open(const core::Job& job, const std::optional<executors::Trouble>& trouble, v1::Job& out) {
  if (core::is_ended(job.state)) return;
  if (job.held) out.set_held_by(job.held_by);
  for (const auto& dependency : job.after) {
    if (!dependency.met) {
      out.add_waits_for(std::string(core::to_string(dependency.on)) + ":" + std::to_string(dependency.job));
    }
  }
  // Local processes have no scheduler to lose.
  const auto* attempt = job.current();
  const bool local = attempt != nullptr && attempt->started_at && !attempt->queued_at;
  if (trouble && !local) out.set_scheduler_problem(executors::trouble_text(*trouble));
}

/// An ended job with as much as its standing needs, without reading its history.
core::Job ended_job(const store::JobRow& row) {
  core::Job job;
  job.id = row.id;
  job.state = row.state;
  job.reason = row.reason;
  job.is_command = row.is_command;
  if (row.newest_attempt) job.attempts.push_back(*row.newest_attempt);
  return job;
}

/// The common fields of a job and of its row in a list.
template <typename JobOrRow>
v1::Job begin_view(const JobOrRow& job, const Standing& standing) {
  v1::Job out;
  out.set_id(job.id);
  out.set_name(job.name);
  out.set_state(std::string(core::to_string(job.state)));
  fill_standing(standing, out);
  out.set_user(job.user);
  out.set_kind(job.is_command ? "command" : "recipe");
  out.set_submitted_at(common::time_text(job.submitted_at));
  out.set_ended_at(common::time_text(job.ended_at));
  out.set_next_attempt_at(common::time_text(job.next_attempt_at));
  out.set_last_checkpoint_step(job.last_checkpoint_step);
  out.set_version(job.version);
  return out;
}

}  // namespace

template <typename Answer, typename Make>
Outcome<Answer> Views::of_job(core::JobId id, const Make& make) {
  try {
    const auto job = parts_.event_log.job(id);
    if (job == nullptr) return Refusal::no_job(id);
    if (job->removed_at) return Refusal::not_found(core::removed_text(*job));
    return make(job);
  } catch (const std::exception& e) {
    return Refusal::unavailable(e.what());
  }
}

Standing Views::standing(const core::Job& job) {
  StandingFacts facts{job, parts_.clock.wall()};
  if (core::is_ended(job.state)) return standing_of(facts);
  const auto* attempt = job.current();
  if (attempt != nullptr && attempt->suspicion) {
    if (const auto spec = parts_.specs.get(job.id)) facts.hung_after = core::Millis(spec->liveness().hung_after_ms());
  }
  const bool between = attempt == nullptr || attempt->state == core::AttemptState::kEnded;
  const auto number = static_cast<core::AttemptNumber>(job.attempts.size() + (between ? 1 : 0));
  facts.trouble = parts_.executor.trouble();
  facts.queue = parts_.executor.queue_word({job.id, number});
  if (facts.queue && facts.queue->unheard_for && parts_.options.advertised) {
    std::tie(facts.musterd_at, facts.address_problem) = parts_.options.advertised();
  }
  if (auto& word = facts.queue; word && word->expected_start && !is_foreseen(*word->expected_start, facts.now)) {
    word->expected_start.reset();
    if (!word->sentence.empty())
      word->sentence += " When it starts can't be told: a job without a time limit is first.";
  }
  facts.wait = parts_.admission.why_not(job, facts.now);
  if (!facts.wait && facts.queue) facts.wait = parts_.partitions.why_never(job, facts.queue->reason);
  return standing_of(facts);
}

Outcome<v1::WhyResponse> Views::why(core::JobId id) {
  return of_job<v1::WhyResponse>(id, [&](const jobs::JobPtr& job) {
    v1::WhyResponse out;
    out.set_job_id(id);
    out.set_state(std::string(core::to_string(job->state)));
    fill_standing(standing(*job), out);
    if (const auto spec = parts_.specs.get(id)) {
      for (auto& note : notes(*job, *spec)) out.add_notes(std::move(note));
    }
    return out;
  });
}

Outcome<v1::Job> Views::get(core::JobId id) {
  return of_job<v1::Job>(id, [&](const jobs::JobPtr& job) { return view(job); });
}

Outcome<v1::JobSpec> Views::spec(core::JobId id) {
  return of_job<v1::JobSpec>(id, [&](const jobs::JobPtr&) {
    const auto spec = parts_.specs.get(id);
    return spec == nullptr ? Outcome<v1::JobSpec>(Refusal::no_job(id)) : *spec;
  });
}

v1::ListResponse Views::list(const v1::ListRequest& request) {
  store::ListFilter filter;
  for (const auto state : core::kAllJobStates) {
    for (const auto& wanted : request.states()) {
      if (wanted == core::to_string(state)) filter.states.push_back(state);
    }
  }
  v1::ListResponse response;
  if (request.states_size() > 0 && filter.states.empty()) return response;
  if (!request.may().empty()) {
    const auto allowed = states_that_allow(request.may());
    if (filter.states.empty()) filter.states = allowed;
    std::erase_if(filter.states, [&](auto state) { return std::ranges::find(allowed, state) == allowed.end(); });
    if (filter.states.empty()) return response;
  }
  filter.limit = std::min(request.limit() == 0 ? kListDefault : request.limit(), kListMost);
  filter.before = request.before_id();
  filter.sweep = request.sweep();
  filter.ids.assign(request.job_ids().begin(), request.job_ids().end());
  if (filter.ids.size() > kListMost) filter.ids.resize(kListMost);
  const auto trouble = parts_.executor.trouble();
  const auto most = static_cast<int>(filter.limit);
  // The state alone does not tell whether a job is held. A row may be left out, so further rows are read.
  for (int page = 0; page < kMostListPages && response.jobs_size() < most; ++page) {
    const auto rows = parts_.store.list(filter);
    for (const auto& row : rows) {
      const auto open = core::is_ended(row.state) ? nullptr : parts_.event_log.job(row.id);
      const bool refused = !refusal_of(open != nullptr ? *open : ended_job(row), request.may()).empty();
      if (refused || response.jobs_size() == most) continue;
      auto& job = *response.add_jobs();
      job = line(row, open.get());
      if (open != nullptr) fill_open(*open, trouble, job);
      // A job without an attempt has reported nothing.
      if (request.with_series() && row.newest_attempt) {
        for (const auto& series : parts_.newest.series(row.id)) fill_series(series, *job.add_series());
      }
      if (const auto whole = request.with_ranks() ? parts_.event_log.job(row.id) : nullptr) {
        fill_ranks(*whole, parts_.newest.get(row.id), job);
      }
    }
    if (rows.size() < filter.limit) break;
    filter.before = rows.back().id;
  }
  response.set_total(filter.ids.empty() ? parts_.store.count(filter.states, filter.sweep) : response.jobs_size());
  return response;
}

v1::Job Views::line(const store::JobRow& row, const core::Job* open) {
  auto out = begin_view(row, open != nullptr ? standing(*open) : standing_of({ended_job(row)}));
  out.set_started_at(common::time_text(row.started_at));
  const auto spec = parts_.specs.headline(row.id);
  const auto& newest = row.newest_attempt;
  if (newest) fill_attempt(*newest, *out.add_attempts());
  const auto* living = open != nullptr ? open->current() : nullptr;
  if (living != nullptr && newest && living->number == newest->number) fill_share(*living, *out.mutable_attempts(0));
  if (newest) out.set_executor(executor_of(*newest));
  if (!row.sweep.empty()) {
    if (spec) *out.mutable_sweep() = spec->sweep;
    out.mutable_sweep()->set_sweep(row.sweep);
    out.mutable_sweep()->set_index(row.sweep_index);
    jobfile::mask_secrets(*out.mutable_sweep());
  }
  const bool reports = !row.is_command || (newest && newest->resumed_from_step) || row.last_checkpoint_step > 0;
  fill_newest(newest ? parts_.newest.get(row.id) : std::nullopt, reports, newest ? &*newest : nullptr, out);
  if (spec) out.set_steps_total(spec->steps);
  if (out.steps_total() == 0) out.set_steps_total(row.total_steps);
  out.set_program_status(row.program_status);
  if (open != nullptr && newest) {
    const auto live = parts_.live_ranks.view({row.id, newest->number}, 0);
    if (live && live->program) out.set_program_status(live->program->status());
  }
  return out;
}

std::optional<ranks::LeastProgress> Views::least_progress(const core::Job& job) {
  const auto* attempt = job.current();
  if (attempt == nullptr || core::is_ended(job.state)) return std::nullopt;
  return parts_.live_ranks.least_progress({job.id, attempt->number}, parts_.clock.monotonic());
}

/// Fills in what the program has told of itself: what the history knows, and on top what rank 0 says while it runs.
void Views::fill_program(const core::Job& job, v1::Job& out) {
  const auto& program = job.program;
  *out.mutable_config() = settings_of(program.config);
  fill_checkpoints(program, out);
  out.set_program_status(program.status);
  const auto* attempt = job.current();
  if (attempt != nullptr && !attempt->ranks.empty() && attempt->ranks[0].state != core::RankState::kExited) {
    const auto live = parts_.live_ranks.view({job.id, attempt->number}, 0);
    if (live && live->program != nullptr) out.set_program_status(live->program->status());
  }
  if (const auto least = least_progress(job)) out.set_hang_limit(hang_limit_text(*least));
}

/// Rows of ranks are kept for a day at least, so none of a younger job was left out.
std::string Views::left_out_note(const core::Job& job) {
  constexpr core::Millis kLeastKept = std::chrono::hours(24);
  const auto started = job.attempts.empty() ? std::nullopt : job.attempts.front().started_at;
  if (!started || parts_.clock.wall() - *started < kLeastKept) return {};
  std::int64_t rows = 0;
  try {
    rows = parts_.newest.left_out(job.id);
  } catch (const store::Error&) {  // the page is worth more than this note
  }
  if (rows == 0) return {};
  return core::count_text(static_cast<std::size_t>(rows), "row") +
         (rows == 1 ? " of its metrics is" : " of its metrics are") +
         " in no curve: they came so late that nobody could tell any more whether they had come before "
         "(musterd --rank-metrics-days)";
}

std::vector<std::string> Views::notes(const core::Job& job, const v1::JobSpec& spec) {
  const auto* attempt = job.current();
  const auto ran_on = attempt != nullptr ? executor_of(*attempt) : "";
  const auto wanted = spec.executor().empty() ? "auto" : spec.executor();
  const bool is_local = ran_on.empty() ? !parts_.executor.has_queue(wanted) : ran_on == "local";
  auto notes = jobfile::idle_keys(spec, job.reports() || parts_.newest.get(job.id), is_local);
  if (is_local) {
    if (auto note = gpu_note(spec, parts_.admission.own_machine()); !note.empty()) notes.push_back(std::move(note));
  }
  if (parts_.newest.series(job.id).size() >= spec::kMostSeries) {
    notes.push_back("This job reports " + std::to_string(spec::kMostSeries) +
                    " series, as many as are kept of a job; values of further ones are left out.");
  }
  if (auto note = left_out_note(job); !note.empty()) notes.push_back(std::move(note));
  auto lines = job.program.bad_lines;
  auto first = job.program.first_bad_line;
  auto trouble = job.program.source_trouble;
  for (core::RankNumber rank = 0; attempt != nullptr && rank < attempt->ranks.size(); ++rank) {
    const bool has_exited = attempt->ranks[rank].state == core::RankState::kExited;
    const auto live = parts_.live_ranks.view({job.id, attempt->number}, rank);
    if (!live || live->program == nullptr) continue;
    const auto& words = *live->program;
    const bool is_for_the_end = words.source_trouble().starts_with(spec::kNothingMatches);
    // The agent of a rank that has exited may have said more since.
    if (trouble.empty() && !words.source_trouble().empty() && !is_for_the_end) {
      trouble = "rank " + std::to_string(rank) + ": " + words.source_trouble();
    }
    if (has_exited || words.bad_lines() == 0) continue;
    if (lines == 0) first = "rank " + std::to_string(rank) + ", " + words.first_bad_line();
    lines += words.bad_lines();
  }
  if (auto note = bad_lines_note(lines, first); !note.empty()) notes.push_back(std::move(note));
  if (!trouble.empty()) notes.push_back(std::move(trouble));
  // A suspicion is the job's reason already.
  const bool is_suspected = attempt != nullptr && attempt->suspicion;
  if (const auto least = is_suspected ? std::nullopt : least_progress(job)) {
    if (auto note = no_progress_note(*least, parts_.clock.monotonic()); !note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

v1::Job Views::view(const jobs::JobPtr& of) {
  const auto& job = *of;
  const auto spec = parts_.specs.get(job.id);
  if (spec == nullptr) throw std::runtime_error("job " + std::to_string(job.id) + " has no stored spec");
  auto out = begin_view(job, standing(job));
  *out.mutable_controls() = controls_of(job);
  for (const auto& attempt : job.attempts) {
    fill_attempt(attempt, *out.add_attempts());
    if (out.started_at().empty()) out.set_started_at(common::time_text(attempt.started_at));
  }
  std::optional<store::MetricRow> newest;
  if (const auto* attempt = job.current()) {
    const core::AttemptKey key{job.id, attempt->number};
    newest = parts_.newest.get(job.id);
    fill_ranks(job, newest, out);
    out.set_log_folder(parts_.data.logs(key).string());
    out.set_executor(executor_of(*attempt));
    for (const auto& series : parts_.newest.series(job.id)) fill_series(series, *out.add_series());
  }
  out.set_ranks_total(job.world_size);
  fill_open(job, parts_.executor.trouble(), out);
  out.set_time_limit_ms(job.time_limit.count());
  if (job.time_limit_asked) out.set_time_limit_asked_ms(job.time_limit_asked->count());
  out.set_time_limit_problem(job.time_limit_refusal);
  if (!job.sweep.sweep.empty()) {
    *out.mutable_sweep() = spec->sweep();
    out.mutable_sweep()->set_sweep(job.sweep.sweep);
    jobfile::mask_secrets(*out.mutable_sweep());
  }
  fill_newest(newest, job.reports(), job.attempts.empty() ? nullptr : &job.attempts.back(), out);
  // One that sends heartbeats and no metrics.
  if (!out.has_step() && out.ranks_size() > 0 && out.ranks(0).has_step()) out.set_step(out.ranks(0).step());
  for (auto& note : notes(job, *spec)) out.add_notes(std::move(note));
  fill_program(job, out);
  out.set_steps_total(jobfile::whole_of(spec->recipe(), "train.steps"));
  if (out.steps_total() == 0) out.set_steps_total(job.program.total_steps);
  out.set_checkpoint_folder(jobs::checkpoint_folder(*spec, job.id, parts_.data).string());
  *out.mutable_spec() = *spec;
  jobfile::mask_secrets(*out.mutable_spec());
  return out;
}

/// Fills in the ranks of the newest attempt.
void Views::fill_ranks(const core::Job& job, const std::optional<store::MetricRow>& newest, v1::Job& out) {
  const auto* attempt = job.current();
  if (attempt == nullptr) return;
  const auto now = parts_.clock.monotonic();
  const auto machine = parts_.admission.own_machine();
  for (core::RankNumber rank = 0; rank < attempt->ranks.size(); ++rank) {
    const auto live = parts_.live_ranks.view({job.id, attempt->number}, rank);
    fill_rank(job, *attempt, rank, live, newest, now, *out.add_ranks());
    out.mutable_ranks()->rbegin()->set_gpus(gpus_of_rank(*attempt, rank, machine));
  }
}

jobs::JobPtr Views::with_attempt(core::JobId id, core::AttemptNumber attempt) {
  auto job = parts_.event_log.job(id);
  const bool is_there = job != nullptr && !job->removed_at && attempt >= 1 && attempt <= job->attempts.size();
  return is_there ? job : nullptr;
}

std::string Views::log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank) {
  const auto job = with_attempt(id, attempt);
  return job == nullptr || rank >= job->world_size ? "" : parts_.data.log({id, attempt}, rank).string();
}

std::string Views::scheduler_log_path(core::JobId id, core::AttemptNumber attempt) {
  const auto job = with_attempt(id, attempt);
  if (job == nullptr || !parts_.options.scheduler_log || !job->attempts[attempt - 1].scheduler_job) return {};
  return parts_.options.scheduler_log(parts_.data.attempt({id, attempt})).string();
}

v1::Event event_view(const store::StoredEvent& event) {
  v1::Event out;
  out.set_id(event.id);
  out.set_job_id(event.job);
  out.set_version(event.version);
  out.set_at(common::time_text(event.event.at));
  out.set_type(std::string(core::type_name(event.event.body)));
  out.set_attempt(core::attempt_of(event.event.body));
  out.set_job_state(std::string(core::to_string(event.state_after)));
  out.set_text(event.text);
  out.set_payload(event.payload);
  return out;
}

v1::Metric metric_view(const store::StepRow& step) {
  const auto& row = step.row;
  v1::Metric out;
  out.set_attempt(row.attempt);
  out.set_step(row.step);
  if (const auto loss = training_loss(row)) out.set_loss(*loss);
  if (const auto tokens = store::value_of(row, "tokens_per_s")) out.set_tokens_per_s(*tokens);
  if (row.step_ms) out.set_step_ms(*row.step_ms);
  if (row.memory_peak_bytes) out.set_memory_peak_bytes(*row.memory_peak_bytes);
  if (row.memory_bytes) out.set_memory_bytes(*row.memory_bytes);
  if (row.bytes_communicated) out.set_bytes_communicated(*row.bytes_communicated);
  for (const auto& value : row.values) (*out.mutable_series())[value.series] = value.value;
  out.set_at_ms(row.at_ms);
  if (step.aged_before) out.set_aged_before_step(*step.aged_before);
  return out;
}

}  // namespace service
