#include "controller/core/transitions.h"

#include <algorithm>
#include <csignal>

#include "controller/core/requeue_policy.h"

namespace core {
namespace {

/// True if a rank exited with kExitNeverRequeue: another attempt cannot help.
bool is_hopeless(const Attempt& attempt) {
  return attempt.cause == Cause::kFailed && attempt.culprit_exit && attempt.culprit_exit->signal == 0 &&
         attempt.culprit_exit->code == kExitNeverRequeue;
}

/// Starts the next attempt after a requeue by a person or the scheduler. A requeue has no budget. One that came without
/// progress from the scheduler waits for the backoff.
void come_back_requeued(Applied& out, const Attempt& ended, Time at) {
  Job& job = out.job;
  const bool progress = job.saved_anew || ran_healthily(job.policy, ended, at);
  const bool slowed = !job.requeue_requested && has_backoff(ended.cause, progress);
  // The attempt was ending for another cause when the person asked, so drain() has not seen the request.
  if (job.requeue_requested && ended.cause != Cause::kRequeued) refill_budgets(job, {Refill::By::kRequeue});
  if (slowed) ++job.unhealthy_ends;
  wait_for_next(out, at + (slowed ? backoff(job.policy, job.unhealthy_ends) : Millis{0}));
}

void forget_error(Job& job) {
  job.same_errors = 0;
  job.last_error.clear();
  job.last_error_step = 0;
  job.last_error_after = {};
}

/// Compares the attempt's error with the one before. True: it came too often, so the job is not tried again.
bool same_error_again(Job& job, const Attempt& ended, Time at, bool is_long) {
  if (!is_long && !is_quick_failure(job, ended, at)) {
    forget_error(job);
    return false;
  }
  const Millis took = at - *ended.started_at;
  const bool same = job.last_error_step == ended.error_step &&
                    same_error(job.last_error, ended.error, job.error_rules, ended.newest_step) &&
                    (!is_long || took_as_long(job.last_error_after, took));
  job.same_errors = job.same_errors > 0 && same ? job.same_errors + 1 : 1;
  job.last_error = ended.error;
  job.last_error_step = ended.error_step;
  job.last_error_after = took;
  // One long attempt shows nothing yet.
  return job.same_errors > job.policy.max_same_error && !(is_long && job.same_errors == 1);
}

/// Counts the end against the budget of its cause. Starts the next attempt, or ends the job when the budget is spent.
void charge(Applied& out, const Attempt& ended, Time at, bool is_long) {
  Job& job = out.job;
  const std::uint32_t count = ++job.spent[ended.cause];
  const bool slowed = has_backoff(ended.cause, job.saved_anew) || is_hasty(ended, job.saved_anew, count, at);
  if (slowed) ++job.unhealthy_ends;
  out.effect.is_charged = true;
  if (same_error_again(job, ended, at, is_long)) out.effect.given_up = GivenUp::kSameError;
  if (count > budget(job.policy, ended.cause).value_or(0)) out.effect.given_up = GivenUp::kBudget;
  if (out.effect.given_up != GivenUp::kNo) return end_job(job, JobState::kFailed, at);
  wait_for_next(out, at + (slowed ? backoff(job.policy, job.unhealthy_ends) : Millis{0}));
}

}  // namespace

// muster cannot know who sent any other signal. A kernel out of memory may kill several ranks.
bool is_stopped_by_muster(const Attempt& attempt, RankNumber rank) {
  const auto& exit = attempt.ranks[rank].exit;
  if (!exit) return false;
  switch (rule_of(attempt.cause).stopped) {
    case Stopped::kEveryRank:
      return exit->signal == SIGTERM || exit->signal == SIGKILL;
    case Stopped::kOtherRanks:
      return exit->signal == SIGTERM && attempt.culprit && *attempt.culprit != rank;
    case Stopped::kNobody:
      break;
  }
  return false;
}

AttemptNumber next_number(const Job& job) {
  return static_cast<AttemptNumber>(job.attempts.size() + 1);
}

std::size_t ranks_left(const Attempt& attempt) {
  return static_cast<std::size_t>(
      std::ranges::count_if(attempt.ranks, [](const Rank& rank) { return rank.state != RankState::kExited; }));
}

std::size_t ranks_missing(const Attempt& attempt) {
  return static_cast<std::size_t>(
      std::ranges::count_if(attempt.ranks, [](const Rank& rank) { return rank.state == RankState::kStarting; }));
}

Cause cause_of(const AttemptStopping& event) {
  return event.cause == Cause::kNone ? Cause::kPreempted : event.cause;
}

void record(Applied& out, const Verdict& verdict) {
  Attempt& attempt = out.job.attempts.back();
  attempt.cause = verdict.cause;
  attempt.culprit = verdict.culprit;
  attempt.culprit_exit = verdict.culprit_exit;
  out.effect.decides = true;
}

void drain(Applied& out, const Verdict& verdict) {
  Attempt& attempt = out.job.attempts.back();
  if (attempt.state == AttemptState::kDraining) {
    out.effect.kind = Effect::Kind::kDrainsAlready;
    return;
  }
  out.effect.kind = Effect::Kind::kDrains;
  out.effect.from_queue = attempt.state == AttemptState::kQueued;
  attempt.state = AttemptState::kDraining;
  attempt.suspicion.reset();
  record(out, verdict);
  out.job.state = JobState::kStopping;
  out.actions.push_back(StopAttempt{attempt.number, verdict.save, {}});
}

void end_attempt(Applied& out, Time at) {
  Job& job = out.job;
  Attempt& attempt = job.attempts.back();
  out.effect.kind = Effect::Kind::kEnds;
  attempt.state = AttemptState::kEnded;
  attempt.suspicion.reset();
  attempt.ended_at = at;
  for (Rank& rank : attempt.ranks) rank.state = RankState::kExited;
  const bool is_long = may_be_a_long_start(job, attempt, at);  // as it stands, before anything is refilled
  out.effect.was_long_start = is_long;
  if (ran_healthily(job.policy, attempt, at) && !failed_while_starting(job, attempt)) {
    const Refill by{Refill::By::kHealthyRun, attempt.number};
    if (is_long) {
      refill_spent(job, by);  // its error is compared
      job.unhealthy_ends = 0;
    } else {
      refill_budgets(job, by);
    }
  }
  // The next attempt is a new submission, which may have any limit.
  job.time_limit = job.time_limit_asked.value_or(job.time_limit);
  job.time_limit_asked.reset();
  job.time_limit_refusal.clear();

  if (job.cancel_requested || attempt.cause == Cause::kCancelled) {
    end_job(job, JobState::kCancelled, at);
  } else if (attempt.cause == Cause::kCompleted) {
    end_job(job, JobState::kSucceeded, at);
  } else if (job.requeue_requested || attempt.cause == Cause::kRequeued) {
    come_back_requeued(out, attempt, at);
  } else if (is_hopeless(attempt)) {
    end_job(job, JobState::kFailed, at);
  } else {
    charge(out, attempt, at, is_long);
  }
}

void wait_for_next(Applied& out, Time at) {
  Job& job = out.job;
  job.state = JobState::kWaiting;
  job.requeue_requested = false;
  job.ended_at.reset();
  job.next_attempt_at = at;
  if (job.may_start()) out.actions.push_back(StartAttempt{next_number(job), at});
}

void refill_budgets(Job& job, Refill by) {
  refill_spent(job, by);
  job.unhealthy_ends = 0;
  forget_error(job);
}

void refill_spent(Job& job, Refill by) {
  if (!job.spent.empty() || job.refilled.by != Refill::By::kStart) job.refilled = by;
  job.spent.clear();
  job.unseen_progress.clear();
  job.brief_files = false;
}

void end_job(Job& job, JobState state, Time at) {
  job.state = state;
  job.ended_at = at;
  job.requeue_requested = false;
  job.next_attempt_at.reset();
  job.next_attempt_reason.clear();
}

}  // namespace core
