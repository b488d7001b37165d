#include "controller/core/transitions.h"

#include <algorithm>
#include <csignal>

#include "controller/core/core_text.h"
#include "controller/core/requeue_policy.h"

namespace core {

namespace {

/// True if a rank exited with kExitNeverRequeue: another attempt cannot help.
bool is_hopeless(const Attempt& attempt) {
  return attempt.cause == Cause::kFailed && attempt.culprit_exit && attempt.culprit_exit->signal == 0 &&
         attempt.culprit_exit->code == kExitNeverRequeue;
}

/// Starts the next attempt, after the backoff if the end was `slowed`. The event's text tells the wait ("in 5 s"),
/// since an event has a time. The job's reason tells the time of the start, since the reason stays while time passes.
void come_back(Applied& out, const Attempt& ended, Time at, bool slowed, const std::string& budget) {
  const Millis wait = slowed ? backoff(out.job.policy, out.job.unhealthy_ends) : Millis{0};
  wait_for_next(out, at + wait, attempt_text(ended.number) + ": " + ended.reason);
  const std::string what = ended.reason + "; " + attempt_text(ended.number + 1) + " ";
  out.text = what + starts_text(out.job, wait) + budget;
  out.job.reason = what + starts_at_text(out.job, wait) + budget;
}

/// Starts the next attempt after a requeue by a person or the scheduler. A requeue has no budget. One that came without
/// progress from the scheduler waits for the backoff.
void come_back_requeued(Applied& out, const Attempt& ended, Time at) {
  Job& job = out.job;
  const bool progress = job.saved_anew || ran_healthily(job.policy, ended, at);
  const bool slowed = !job.requeue_requested && has_backoff(ended.cause, progress);
  // The attempt was ending for another cause when the person asked, so drain() has not seen the request.
  if (job.requeue_requested && ended.cause != Cause::kRequeued) refill_budgets(job, "the requeue");
  if (slowed) ++job.unhealthy_ends;
  come_back(out, ended, at, slowed, "");
}

/// " without progress", or what is known instead about the ends that were counted.
std::string progress_text(const Job& job) {
  if (!job.unseen_progress.empty()) {
    return ", and it is not known whether it saved anything: " + job.unseen_progress;
  }
  if (job.reports()) return " without progress";
  return job.brief_files ? " without progress: the files of a short attempt count only if their names are new"
                         : " without anything new in its checkpoint folder";
}

void forget_error(Job& job) {
  job.same_errors = 0;
  job.last_error.clear();
  job.last_error_step = 0;
  job.last_error_after = {};
}

/// Why the job is not tried again. `reason` is short, since lists show it; `text` is the event's full sentence.
struct Spent {
  std::string reason, text;
};

/// How soon the attempt failed; see is_quick_failure(). `is_long`: may_be_a_long_start().
std::string when_text(Millis took, bool is_long) {
  if (took < kQuick) return "within a minute of its start";
  if (!is_long) return "before its first step";
  return "about " + duration_text(took) + " after its start, without a step told";
}

/// Compares the attempt's error with the one before. Says why the job is not tried again; empty: it is.
Spent same_error_again(Job& job, const Attempt& ended, Time at, bool is_long) {
  if (!is_long && !is_quick_failure(job, ended, at)) {
    forget_error(job);
    return {};
  }
  const Millis took = at - *ended.started_at;
  const bool same = job.last_error_step == ended.error_step &&
                    same_error(job.last_error, ended.error, job.error_rules, ended.newest_step) &&
                    (!is_long || took_as_long(job.last_error_after, took));
  job.same_errors = job.same_errors > 0 && same ? job.same_errors + 1 : 1;
  job.last_error = ended.error;
  job.last_error_step = ended.error_step;
  job.last_error_after = took;
  const auto limit = job.policy.max_same_error;
  // One long attempt shows nothing yet.
  if (job.same_errors <= limit || (is_long && job.same_errors == 1)) return {};
  const std::string limit_text = " (requeue.max_same_error is " + std::to_string(limit) + ")";
  const std::string last = "; not tried again";
  if (job.same_errors == 1) {
    return {"not tried again" + limit_text, "it failed " + when_text(took, is_long) + last + limit_text};
  }
  const std::string times = job.same_errors == 2 ? "twice" : times_text(job.same_errors);
  const std::string where = ended.error_step > 0 ? " at step " + std::to_string(ended.error_step) : "";
  return {"same error " + times + last, "the same error " + times + " in a row" + where + ", each " +
                                            when_text(took, is_long) + (job.reports() ? " without progress" : "") +
                                            last + limit_text};
}

/// Counts the end against the budget of its cause. Starts the next attempt, or ends the job when the budget is spent.
void charge(Applied& out, const Attempt& ended, Time at, bool is_long) {
  Job& job = out.job;
  const std::uint32_t limit = budget(job.policy, ended.cause).value_or(0);
  const std::uint32_t count = ++job.spent[ended.cause];
  const bool slowed = has_backoff(ended.cause, job.saved_anew) || is_hasty(ended, job.saved_anew, count, at);
  if (slowed) ++job.unhealthy_ends;
  Spent spent = same_error_again(job, ended, at, is_long);
  if (count > limit) {
    spent.text = limit == 0 ? "requeue.max_" + std::string(to_string(ended.cause)) + " is 0"
                            : std::string(rule_of(ended.cause).verb) + " " + times_text(count) + progress_text(job) +
                                  " (limit " + std::to_string(limit) + ")";
    spent.reason = spent.text;
  }
  if (!spent.text.empty()) {
    end_job(job, JobState::kFailed, ended.reason + "; " + spent.reason, at);
    out.text = ended.reason + "; " + spent.text;
    return;
  }
  come_back(out, ended, at, slowed,
            " (" + std::string(rule_of(ended.cause).noun) + " " + std::to_string(count) + " of " +
                std::to_string(limit) + (job.refilled_by.empty() ? "" : " since " + job.refilled_by) + ")");
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

std::string attempt_text(AttemptNumber number) {
  return "attempt " + std::to_string(number);
}

bool is_idle(const Job& job) {
  return job.state == JobState::kPending || job.state == JobState::kWaiting;
}

AttemptNumber next_number(const Job& job) {
  return static_cast<AttemptNumber>(job.attempts.size() + 1);
}

std::size_t ranks_left(const Attempt& attempt) {
  return static_cast<std::size_t>(
      std::ranges::count_if(attempt.ranks, [](const Rank& rank) { return rank.state != RankState::kExited; }));
}

void record(Attempt& attempt, const Verdict& verdict) {
  attempt.cause = verdict.cause;
  attempt.reason = verdict.reason;
  attempt.culprit = verdict.culprit;
  attempt.culprit_exit = verdict.culprit_exit;
}

void drain(Applied& out, const Verdict& verdict) {
  Attempt& attempt = out.job.attempts.back();
  if (attempt.state == AttemptState::kDraining) {
    out.text = verdict.reason + "; " + attempt_text(attempt.number) + " is stopping already";
    return;
  }
  const bool was_queued = attempt.state == AttemptState::kQueued;
  attempt.state = AttemptState::kDraining;
  attempt.suspicion.reset();
  record(attempt, verdict);
  const std::string left = count_text(ranks_left(attempt), "rank");
  out.job.state = JobState::kStopping;
  out.job.reason = verdict.reason + (was_queued     ? "; leaving the queue"
                                     : verdict.save ? "; waiting for " + left + " to save and leave"
                                                    : "; stopping " + left);
  out.actions.push_back(StopAttempt{attempt.number, verdict.save, verdict.reason});
  out.text = out.job.reason;
}

void end_attempt(Applied& out, Time at) {
  Job& job = out.job;
  Attempt& attempt = job.attempts.back();
  attempt.state = AttemptState::kEnded;
  attempt.suspicion.reset();
  attempt.ended_at = at;
  for (Rank& rank : attempt.ranks) rank.state = RankState::kExited;
  const bool is_long = may_be_a_long_start(job, attempt, at);  // as it stands, before anything is refilled
  if (ran_healthily(job.policy, attempt, at) && !failed_while_starting(job, attempt)) {
    const auto by = attempt_text(attempt.number) + " ran for " + duration_text(job.policy.healthy_after);
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
    end_job(job, JobState::kCancelled, job.cancel_requested ? "cancelled by " + job.cancelled_by : attempt.reason, at);
  } else if (attempt.cause == Cause::kCompleted) {
    end_job(job, JobState::kSucceeded, attempt.reason, at);
  } else if (job.requeue_requested || attempt.cause == Cause::kRequeued) {
    come_back_requeued(out, attempt, at);
    return;
  } else if (is_hopeless(attempt)) {
    end_job(job, JobState::kFailed, attempt.reason, at);
  } else {
    charge(out, attempt, at, is_long);
    return;
  }
  out.text = job.reason;
}

void wait_for_next(Applied& out, Time at, std::string reason_started) {
  Job& job = out.job;
  job.state = JobState::kWaiting;
  job.requeue_requested = false;
  job.ended_at.reset();
  job.next_attempt_at = at;
  job.next_attempt_reason = std::move(reason_started);
  if (job.may_start()) out.actions.push_back(StartAttempt{next_number(job), at});
}

void refill_budgets(Job& job, const std::string& by) {
  refill_spent(job, by);
  job.unhealthy_ends = 0;
  forget_error(job);
}

void refill_spent(Job& job, const std::string& by) {
  if (!job.spent.empty() || !job.refilled_by.empty()) job.refilled_by = by;
  job.spent.clear();
  job.unseen_progress.clear();
  job.brief_files = false;
}

void end_job(Job& job, JobState state, std::string reason, Time at) {
  job.state = state;
  job.reason = std::move(reason);
  job.ended_at = at;
  job.requeue_requested = false;
  job.next_attempt_at.reset();
  job.next_attempt_reason.clear();
}

}  // namespace core
