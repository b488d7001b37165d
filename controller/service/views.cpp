#include "service/views.h"

#include "base/time_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "actions/launch_plan.h"
#include "jobfile/job_keys.h"
#include "jobfile/spec.h"
#include "schema/series.h"

namespace service {
namespace {

template <typename Message>
void set_exit(const std::optional<core::ExitStatus>& exit, Message& out) {
  if (!exit) return;
  if (exit->signal != 0) {
    out.set_signal(exit->signal);
  } else {
    out.set_exit_code(exit->code);
  }
}

void fill_attempt(const core::Attempt& attempt, muster::v1::Attempt& out) {
  out.set_number(attempt.number);
  out.set_state(std::string(core::to_string(attempt.state)));
  if (attempt.cause != core::Cause::kNone) out.set_cause(std::string(core::to_string(attempt.cause)));
  out.set_reason(attempt.reason);
  out.set_started_at(base::time_text(attempt.started_at));
  out.set_ended_at(base::time_text(attempt.ended_at));
  if (attempt.resumed_from_step) out.set_resumed_from_step(*attempt.resumed_from_step);
  out.set_reason_started(attempt.reason_started);
  set_exit(attempt.culprit_exit, out);
  if (attempt.culprit) out.set_rank(*attempt.culprit);
  out.set_error(attempt.error);
  out.set_queued_at(base::time_text(attempt.queued_at));
  if (attempt.scheduler_job) out.set_scheduler_job(core::to_string(*attempt.scheduler_job));
  for (const auto& rank : attempt.ranks) {
    const bool known = std::ranges::find(out.nodes(), rank.node) != out.nodes().end();
    if (!rank.node.empty() && !known) out.add_nodes(rank.node);
  }
}

std::string executor_of(const core::Attempt& attempt) {
  return attempt.queued_at ? "slurm" : attempt.started_at ? "local" : "";
}

/// `newest`: the newest step that is stored of the job. A recipe's rank has done 0 before its first.
void fill_rank(const core::Job& job, const core::Attempt& attempt, std::size_t number,
               const std::optional<ranks::RankView>& live, const std::optional<store::MetricRow>& newest,
               core::Millis now, muster::v1::Rank& out) {
  const auto& rank = attempt.ranks[number];
  out.set_rank(static_cast<std::uint32_t>(number));
  out.set_node(rank.node);
  out.set_pid(rank.pid);
  out.set_state(std::string(core::to_string(rank.state)));
  out.set_attempt(attempt.number);
  set_exit(rank.exit, out);
  out.set_stopped_by_muster(core::is_stopped_by_muster(attempt, static_cast<core::RankNumber>(number)));
  if (!job.is_command) out.set_step(0);
  if (live && live->heard_at) {
    out.set_section(ranks::section_name(live->section));
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
    if (schema::quantity_of(value.series) == "loss" && !schema::is_held_out(value.series)) return value.value;
  }
  return std::nullopt;
}

/// `reports`: it is known to tell of its steps, even without a newest one.
void fill_newest(const std::optional<store::MetricRow>& newest, bool reports, muster::v1::Job& out) {
  out.set_reports(reports || newest);
  if (out.kind() == "recipe") out.set_step(0);
  if (!newest) return;
  out.set_step(newest->step);
  if (const auto loss = training_loss(*newest)) out.set_loss(*loss);
  if (const auto tokens = store::value_of(*newest, "tokens_per_s")) out.set_tokens_per_s(*tokens);
}

void fill_series(const store::SeriesRow& row, muster::v1::JobSeries& out) {
  out.set_name(row.series.name);
  out.set_unit(row.series.unit);
  out.set_better(std::string(schema::to_string(row.series.better)));
  out.set_over_ranks(std::string(schema::to_string(row.series.over_ranks)));
  out.set_quantity(std::string(schema::quantity_of(row.series.name)));
  out.set_held_out(schema::is_held_out(row.series.name));
  out.set_attempt(row.attempt);
  out.set_step(row.step);
  if (std::isfinite(row.value)) out.set_value(row.value);
}

}  // namespace

// What an ended job was held by or waited for is history.
void fill_open(const core::Job& job, const std::optional<executors::Trouble>& trouble, muster::v1::Job& out) {
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

muster::v1::Job job_view(const JobFacts& facts) {
  const auto& job = facts.job;
  muster::v1::Job out;
  out.set_id(job.id);
  out.set_name(job.name);
  out.set_state(std::string(core::to_string(job.state)));
  fill_standing(facts.standing, out);
  *out.mutable_controls() = controls_of(job);
  out.set_user(job.user);
  out.set_kind(job.is_command ? "command" : "recipe");
  out.set_submitted_at(base::time_text(job.submitted_at));
  out.set_ended_at(base::time_text(job.ended_at));
  out.set_next_attempt_at(base::time_text(job.next_attempt_at));
  for (const auto& attempt : job.attempts) {
    fill_attempt(attempt, *out.add_attempts());
    if (out.started_at().empty()) out.set_started_at(base::time_text(attempt.started_at));
  }
  if (const auto* newest = job.current()) {
    const core::AttemptKey key{job.id, newest->number};
    for (std::size_t r = 0; r < newest->ranks.size(); ++r) {
      fill_rank(job, *newest, r, facts.live_ranks.view(key, static_cast<core::RankNumber>(r)), facts.newest, facts.now,
                *out.add_ranks());
    }
    out.set_log_folder(facts.data.logs(key).string());
  }
  out.set_ranks_total(job.world_size);
  if (const auto* newest = job.current()) out.set_executor(executor_of(*newest));
  fill_open(job, facts.trouble, out);
  out.set_time_limit_ms(job.time_limit.count());
  if (job.time_limit_asked) out.set_time_limit_asked_ms(job.time_limit_asked->count());
  out.set_time_limit_problem(job.time_limit_refusal);
  if (!job.sweep.sweep.empty()) {
    *out.mutable_sweep() = facts.spec.sweep();
    out.mutable_sweep()->set_sweep(job.sweep.sweep);
    jobfile::mask_secrets(*out.mutable_sweep());
  }
  fill_newest(facts.newest, job.reports(), out);
  for (const auto& series : facts.series) fill_series(series, *out.add_series());
  // One that sends heartbeats and no metrics.
  if (!out.has_step() && out.ranks_size() > 0 && out.ranks(0).has_step()) out.set_step(out.ranks(0).step());
  for (auto& note : jobfile::idle_keys(facts.spec, out.reports())) out.add_notes(std::move(note));
  if (facts.series.size() >= schema::kMostSeries) {
    out.add_notes("This job reports " + std::to_string(schema::kMostSeries) +
                  " series, as many as are kept of a job; values of further ones are left out.");
  }
  out.set_steps_total(jobfile::whole_of(facts.spec.recipe(), "train.steps"));
  out.set_last_checkpoint_step(job.last_checkpoint_step);
  out.set_version(job.version);
  out.set_checkpoint_folder(jobs::checkpoint_folder(facts.spec, job.id, facts.data).string());
  *out.mutable_spec() = facts.spec;
  jobfile::mask_secrets(*out.mutable_spec());
  return out;
}

core::Job ended_job(const store::JobRow& row) {
  core::Job job;
  job.id = row.id;
  job.state = row.state;
  job.reason = row.reason;
  job.is_command = row.is_command;
  if (row.newest_attempt) job.attempts.push_back(*row.newest_attempt);
  return job;
}

muster::v1::Job row_view(const store::JobRow& row, const Standing& standing, const muster::v1::JobSpec* spec,
                         const std::optional<store::MetricRow>& newest) {
  muster::v1::Job out;
  out.set_id(row.id);
  out.set_name(row.name);
  out.set_state(std::string(core::to_string(row.state)));
  fill_standing(standing, out);
  out.set_user(row.user);
  out.set_kind(row.is_command ? "command" : "recipe");
  out.set_submitted_at(base::time_text(row.submitted_at));
  out.set_started_at(base::time_text(row.started_at));
  out.set_ended_at(base::time_text(row.ended_at));
  out.set_next_attempt_at(base::time_text(row.next_attempt_at));
  if (row.newest_attempt) fill_attempt(*row.newest_attempt, *out.add_attempts());
  if (row.newest_attempt) out.set_executor(executor_of(*row.newest_attempt));
  if (!row.sweep.empty()) {
    if (spec != nullptr) *out.mutable_sweep() = spec->sweep();
    out.mutable_sweep()->set_sweep(row.sweep);
    out.mutable_sweep()->set_index(row.sweep_index);
    jobfile::mask_secrets(*out.mutable_sweep());
  }
  const bool resumed = row.newest_attempt && row.newest_attempt->resumed_from_step;
  fill_newest(newest, !row.is_command || resumed || row.last_checkpoint_step > 0, out);
  if (spec != nullptr) out.set_steps_total(jobfile::whole_of(spec->recipe(), "train.steps"));
  out.set_last_checkpoint_step(row.last_checkpoint_step);
  out.set_version(row.version);
  return out;
}

muster::v1::Event event_view(const store::StoredEvent& event) {
  muster::v1::Event out;
  out.set_id(event.id);
  out.set_job_id(event.job);
  out.set_version(event.version);
  out.set_at(base::time_text(event.event.at));
  out.set_type(std::string(core::type_name(event.event.body)));
  out.set_attempt(core::attempt_of(event.event.body));
  out.set_job_state(std::string(core::to_string(event.state_after)));
  out.set_text(event.text);
  out.set_payload(event.payload);
  return out;
}

muster::v1::Metric metric_view(const store::StepRow& step) {
  const auto& row = step.row;
  muster::v1::Metric out;
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
  return out;
}

}  // namespace service
