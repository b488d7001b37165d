#include <algorithm>

#include "controller/core/core_text.h"
#include "controller/core/transitions.h"

namespace core {
namespace {

/// Why a job that has ended, or is being cancelled, takes no change of its attempts.
Refusal if_ended(const Job& job) {
  if (is_ended(job.state)) return Refusal::kEnded;
  return job.cancel_requested ? Refusal::kEnding : Refusal::kNone;
}

Refusal refuse(const Job& job, const CancelRequested&) {
  return is_ended(job.state) ? Refusal::kEnded : Refusal::kNone;
}

Refusal refuse(const Job& job, const RequeueRequested&) {
  if (job.removed_at) return Refusal::kRemoved;
  if (job.cancel_requested || job.state == JobState::kCancelled) return Refusal::kCancelled;
  switch (job.state) {
    case JobState::kPending:
      return Refusal::kNotStarted;
    case JobState::kQueued:
      return Refusal::kInQueue;
    case JobState::kSucceeded:
      return Refusal::kSucceeded;
    default:
      return Refusal::kNone;
  }
}

Refusal refuse(const Job& job, const HoldRequested&) {
  return if_ended(job);
}

Refusal refuse(const Job& job, const ReleaseRequested&) {
  if (is_ended(job.state)) return Refusal::kEnded;
  return job.held ? Refusal::kNone : Refusal::kNotHeld;
}

Refusal refuse(const Job& job, const TimeLimitChanged&) {
  return if_ended(job);
}

Refusal refuse(const Job& job, const JobRemoved&) {
  if (job.removed_at) return Refusal::kRemoved;
  return is_ended(job.state) ? Refusal::kNone : Refusal::kNotEnded;
}

/// True if the job's state refuses the request: then nothing changes.
bool is_refused(Applied& out, const EventBody& request) {
  if (refusal_of(out.job, request) == Refusal::kNone) return false;
  out.effect.kind = Effect::Kind::kNothing;
  return true;
}

/// Asks for the next attempt of a job that has none, unless the job must still wait.
void start_if_ready(Applied& out, Time at) {
  Job& job = out.job;
  if (!is_idle(job) || !job.may_start()) return;
  out.actions.push_back(StartAttempt{next_number(job), std::max(at, job.next_attempt_at.value_or(at))});
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

}  // namespace

Refusal refusal_of(const Job& job, const EventBody& request) {
  return std::visit(
      [&](const auto& e) {
        if constexpr (requires { refuse(job, e); }) return refuse(job, e);
        return Refusal::kNone;
      },
      request);
}

void on(Applied& out, const JobSubmitted& e, Time at) {
  Job& job = out.job;
  if (job.version != 1) {
    out.effect.kind = Effect::Kind::kNothing;
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
  if (job.may_start()) out.actions.push_back(StartAttempt{1, at});
}

void on(Applied& out, const CancelRequested& e, Time at) {
  Job& job = out.job;
  if (is_refused(out, e)) return;
  if (job.cancel_requested) {
    out.effect.kind = Effect::Kind::kUnderWay;
    return;
  }
  job.cancel_requested = true;
  job.cancelled_by = person(e.user);
  job.requeue_requested = false;
  if (!is_idle(job)) return drain(out, {Cause::kCancelled, true});
  end_job(job, JobState::kCancelled, at);
  // The attempt may be starting now, or may have been started before a crash. StopAttempt ends it in both cases.
  out.actions.push_back(StopAttempt{next_number(job), false, {}});
}

void on(Applied& out, const RequeueRequested& e, Time at) {
  Job& job = out.job;
  if (is_refused(out, e)) return;
  if (job.state == JobState::kRunning) {
    job.requeue_requested = true;
    drain(out, {Cause::kRequeued, true});
  } else if (job.requeue_requested || (job.state == JobState::kStopping && job.current()->cause == Cause::kRequeued)) {
    out.effect.kind = Effect::Kind::kUnderWay;
  } else if (job.state == JobState::kStopping) {
    job.requeue_requested = true;
  } else {
    if (job.state == JobState::kFailed) refill_budgets(job, {Refill::By::kRequeue});
    wait_for_next(out, at);
  }
}

void on(Applied& out, const HoldRequested& e, Time) {
  Job& job = out.job;
  if (is_refused(out, e)) return;
  if (job.held) {
    out.effect.kind = Effect::Kind::kNothing;
    return;
  }
  job.held = true;
  job.held_by = person(e.user);
  if (job.state == JobState::kQueued) out.actions.push_back(HoldAttempt{job.attempts.back().number, true});
}

void on(Applied& out, const ReleaseRequested& e, Time at) {
  Job& job = out.job;
  if (is_refused(out, e)) return;
  job.held = false;
  job.held_by.clear();
  if (job.state == JobState::kQueued) out.actions.push_back(HoldAttempt{job.attempts.back().number, false});
  start_if_ready(out, at);
}

void on(Applied& out, const TimeLimitChanged& e, Time) {
  Job& job = out.job;
  if (is_refused(out, e)) return;
  const Millis limit = std::max(e.time_limit, Millis{0});
  const bool lives = !is_idle(job) && job.attempts.back().state != AttemptState::kDraining;
  job.time_limit_refusal.clear();
  if (lives) out.actions.push_back(LimitAttempt{job.attempts.back().number, limit});
  if (lives && job.attempts.back().queued_at) {
    job.time_limit_asked = limit;
    return;
  }
  job.time_limit = limit;
  job.time_limit_asked.reset();
}

void on(Applied& out, const DependencyEnded& e, Time at) {
  Job& job = out.job;
  bool news = false, hopeless = false;
  for (Dependency& dependency : job.after) {
    if (!is_ended(e.state) || dependency.job != e.job || dependency.met) continue;
    news = true;
    dependency.met = can_be_met(dependency, e.state);
    hopeless = hopeless || !dependency.met;
  }
  if (!news || is_ended(job.state)) {
    out.effect.kind = Effect::Kind::kNothing;
  } else if (hopeless) {
    end_job(job, JobState::kCancelled, at);
  } else {
    start_if_ready(out, at);
  }
}

void on(Applied& out, const JobRemoved& e, Time at) {
  if (is_refused(out, e)) return;
  out.job.removed_at = at;
  out.job.removed_by = person(e.user);
  out.actions.push_back(RemoveFiles{});
}

}  // namespace core
