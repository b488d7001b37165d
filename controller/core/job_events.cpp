#include <algorithm>
#include <utility>

#include "controller/core/core_text.h"
#include "controller/core/transitions.h"

namespace core {

namespace {

std::string person(std::string_view user) {
  std::string words = plain_words(user);
  return words.empty() ? "someone" : words;
}

/// Asks for the next attempt of a job that has none, unless the job must still wait.
void start_if_ready(Applied& out, Time at) {
  Job& job = out.job;
  if (!is_idle(job)) return;
  if (!job.may_start()) {
    job.reason = what_it_waits_for(job);
    return;
  }
  const Time start = std::max(at, job.next_attempt_at.value_or(at));
  out.actions.push_back(StartAttempt{next_number(job), start});
  job.reason = attempt_text(next_number(job)) + " " + starts_at_text(job, start - at);
}

bool can_be_met(const Dependency& dependency, JobState ended) {
  switch (dependency.on) {
    case DependsOn::kSucceeded:
      return ended == JobState::kSucceeded;
    case DependsOn::kFailed:
      return ended == JobState::kFailed || ended == JobState::kCancelled;
    case DependsOn::kEnded:
      return true;
  }
  return false;
}

/// Tells that the state of the job does not allow the request.
void nothing_changes(Applied& out, const std::string& user, std::string_view asked, std::string_view state) {
  out.text = person(user) + " asked ";
  out.text.append(asked).append("; the job is ").append(state).append(": nothing changes");
}

}  // namespace

void on(Applied& out, const JobSubmitted& e, Time at) {
  Job& job = out.job;
  if (job.version != 1) {
    out.text = "submitted already: nothing changes";
    return;
  }
  job.name = e.name;
  job.user = e.user;
  job.is_command = e.is_command;
  job.world_size = e.world_size;
  job.time_limit = e.time_limit;
  job.policy = e.policy;
  job.state = JobState::kPending;
  job.submitted_at = at;
  job.held = e.held;
  if (e.held) job.held_by = person(e.user);
  job.after = e.after;
  job.sweep = e.sweep;
  job.error_rules = e.error_rules;
  job.tells_steps = e.tells_steps;
  job.reason = "waiting for its first attempt";
  if (job.may_start()) {
    out.actions.push_back(StartAttempt{1, at});
  } else {
    job.reason = what_it_waits_for(job);
  }
  out.text = "submitted by " + person(e.user) + ": " + count_text(e.world_size, "rank") +
             (job.may_start() ? "" : "; " + job.reason);
}

void on(Applied& out, const CancelRequested& e, Time at) {
  Job& job = out.job;
  if (is_ended(job.state) || job.cancel_requested) {
    const bool under_way = !is_ended(job.state);
    return nothing_changes(out, e.user, "to cancel",
                           std::string(to_string(job.state)) + (under_way ? " for that already" : ""));
  }
  job.cancel_requested = true;
  job.cancelled_by = person(e.user);
  job.requeue_requested = false;
  const std::string reason = "cancelled by " + job.cancelled_by;
  if (is_idle(job)) {
    out.text = reason;
    end_job(job, JobState::kCancelled, reason, at);
    // The attempt may be starting now, or may have been started before a crash. StopAttempt ends it in both cases.
    out.actions.push_back(StopAttempt{next_number(job), false, reason});
  } else {
    if (job.state == JobState::kStopping) job.reason = reason + "; " + job.reason;
    drain(out, {Cause::kCancelled, reason, true});
  }
}

void on(Applied& out, const RequeueRequested& e, Time at) {
  Job& job = out.job;
  const std::string reason = "requeued by " + person(e.user);
  out.text = reason;
  if (!refusal_of(job, e).empty()) {
    nothing_changes(out, e.user, "to requeue", to_string(job.state));
  } else if (job.state == JobState::kRunning) {
    job.requeue_requested = true;
    drain(out, {Cause::kRequeued, reason, true});
  } else if (job.requeue_requested || (job.state == JobState::kStopping && job.current()->cause == Cause::kRequeued)) {
    out.text += "; that is under way already";
  } else if (job.state == JobState::kStopping) {
    job.requeue_requested = true;
    job.reason = reason + "; " + job.reason;
    out.text += "; attempt " + std::to_string(next_number(job)) + " starts when this one has stopped";
  } else {
    const std::string after = job.attempts.empty() ? "" : job.attempts.back().reason;
    if (job.state == JobState::kFailed) refill_budgets(job, "the requeue");
    wait_for_next(out, at, reason + (after.empty() ? "" : " after: " + after));
    job.reason = reason + "; attempt " + std::to_string(next_number(job)) + " " + starts_text(job, Millis{0});
    out.text = job.reason;
  }
}

void on(Applied& out, const HoldRequested& e, Time) {
  Job& job = out.job;
  const std::string who = person(e.user);
  if (!refusal_of(job, e).empty() || job.held) {
    return nothing_changes(out, e.user, "to hold",
                           (job.held ? "held" : std::string(to_string(job.state))) + " already");
  }
  job.held = true;
  job.held_by = who;
  out.text = "held by " + who;
  if (job.state == JobState::kQueued) {
    out.actions.push_back(HoldAttempt{job.attempts.back().number, true});
    job.reason = what_it_waits_for(job);
  } else if (is_idle(job)) {
    job.reason = what_it_waits_for(job);
  } else {
    out.text += "; this attempt goes on, and no other starts";
  }
}

void on(Applied& out, const ReleaseRequested& e, Time at) {
  Job& job = out.job;
  const std::string who = person(e.user);
  if (!refusal_of(job, e).empty()) {
    return nothing_changes(out, e.user, "to release", "not held");
  }
  job.held = false;
  job.held_by.clear();
  out.text = "released by " + who;
  if (job.state == JobState::kQueued) {
    out.actions.push_back(HoldAttempt{job.attempts.back().number, false});
    job.reason = attempt_text(job.attempts.back().number) + ": " + job.attempts.back().reason;
  }
  start_if_ready(out, at);
}

void on(Applied& out, const TimeLimitChanged& e, Time) {
  Job& job = out.job;
  if (!refusal_of(job, e).empty()) {
    return nothing_changes(out, e.user, "for another time limit", to_string(job.state));
  }
  const Millis limit = std::max(e.time_limit, Millis{0});
  const std::string words = limit > Millis{0} ? duration_text(limit) : "none";
  const bool lives = !is_idle(job) && job.attempts.back().state != AttemptState::kDraining;
  job.time_limit_refusal.clear();
  if (lives) out.actions.push_back(LimitAttempt{job.attempts.back().number, limit});
  if (lives && job.attempts.back().queued_at) {
    job.time_limit_asked = limit;
    out.text = person(e.user) + " asked for " +
               (limit > Millis{0} ? "a time limit of " + words : std::string("no time limit")) +
               "; the scheduler has not answered yet";
    return;
  }
  job.time_limit = limit;
  job.time_limit_asked.reset();
  out.text = "time limit set to " + words + " by " + person(e.user);
}

void on(Applied& out, const DependencyEnded& e, Time at) {
  Job& job = out.job;
  const std::string other = "job " + std::to_string(e.job) + " " + std::string(to_string(e.state));
  out.text = other;
  if (!is_ended(e.state)) {
    out.text += ": nothing changes";
    return;
  }
  bool news = false, hopeless = false;
  for (Dependency& dependency : job.after) {
    if (dependency.job != e.job || dependency.met) continue;
    news = true;
    dependency.met = can_be_met(dependency, e.state);
    hopeless = hopeless || !dependency.met;
  }
  if (!news || is_ended(job.state)) {
    out.text += ": nothing changes";
  } else if (hopeless) {
    const std::string reason = other + ", so this job can never start: submit it again without that dependency";
    end_job(job, JobState::kCancelled, reason, at);
    out.text = reason;
  } else {
    start_if_ready(out, at);
  }
}

void on(Applied& out, const JobRemoved& e, Time at) {
  Job& job = out.job;
  const std::string who = person(e.user);
  if (!refusal_of(job, e).empty()) {
    return nothing_changes(out, e.user, "to remove", job.removed_at ? "removed already" : to_string(job.state));
  }
  job.removed_at = at;
  job.removed_by = who;
  out.actions.push_back(RemoveFiles{});
  out.text = "removed by " + who;
}

}  // namespace core
