#include "core/apply.h"

#include <algorithm>
#include <utility>

#include "core/outcome.h"
#include "core/text.h"

namespace core {

namespace {

std::string attempt_text(AttemptNumber number) {
  return "attempt " + std::to_string(number);
}
std::string rank_text(RankNumber number) {
  return "rank " + std::to_string(number);
}
std::string person(std::string_view user) {
  std::string words = plain_words(user);
  return words.empty() ? "someone" : words;
}

bool is_idle(const Job& job) {
  return job.state == JobState::kPending || job.state == JobState::kWaiting;
}
AttemptNumber next_number(const Job& job) {
  return static_cast<AttemptNumber>(job.attempts.size() + 1);
}

/// The attempt an event speaks of, if it has not ended; null means that the event is late news.
Attempt* alive(Job& job, AttemptNumber number) {
  if (job.attempts.empty() || job.attempts.back().number != number) return nullptr;
  return job.attempts.back().state == AttemptState::kEnded ? nullptr : &job.attempts.back();
}

/// The rank an event speaks of, if it is still there.
Rank* alive(Attempt& attempt, RankNumber number) {
  if (number >= attempt.ranks.size() || attempt.ranks[number].state == RankState::kExited) return nullptr;
  return &attempt.ranks[number];
}

void late(Applied& out, AttemptNumber number) {
  out.text = attempt_text(number) + " is over: nothing changes";
}
void late(Applied& out, AttemptNumber number, RankNumber rank) {
  out.text = rank_text(rank) + " of " + attempt_text(number) + " is gone: nothing changes";
}

Attempt& add_attempt(Job& job, AttemptNumber number) {
  Attempt& attempt = job.attempts.emplace_back();
  attempt.number = number;
  attempt.reason_started = job.state == JobState::kPending ? "submitted" : job.next_attempt_reason;
  job.next_attempt_at.reset();
  job.next_attempt_reason.clear();
  return attempt;
}

/// A recipe's attempt runs once every rank has spoken (or has left with 0 already).
void note_joined(Applied& out, Attempt& attempt, Time at) {
  if (attempt.state != AttemptState::kStarting) return;
  const auto missing =
      std::ranges::count_if(attempt.ranks, [](const Rank& rank) { return rank.state == RankState::kStarting; });
  if (missing > 0) {
    attempt.reason = "waiting for " + count_text(static_cast<std::size_t>(missing), "rank") + " to join";
  } else {
    attempt.state = AttemptState::kRunning;
    attempt.running_at = at;
    attempt.reason = "running";
    out.text += "; every rank has joined";
  }
  out.job.reason = attempt_text(attempt.number) + ": " + attempt.reason;
}

// One function for each kind of event; a missing one does not compile.

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
  job.reason = "waiting for its first attempt";
  out.actions.push_back(StartAttempt{1, at});
  out.text = "submitted by " + person(e.user) + ": " + count_text(e.world_size, "rank");
}

/// What was started must not run: nothing ever runs unwatched.
void stop_unexpected(Applied& out, AttemptNumber number) {
  const std::string reason = attempt_text(number) + " must not run: the job is " +
                             std::string(to_string(out.job.state)) +
                             (out.job.attempts.empty() ? "" : " at " + attempt_text(out.job.attempts.back().number));
  out.actions.push_back(StopAttempt{number, false, reason});
  out.text = reason + "; stopping it";
}

void on(Applied& out, const AttemptLaunched& e, Time at) {
  Job& job = out.job;
  if (alive(job, e.attempt) != nullptr) {
    out.text = attempt_text(e.attempt) + " has started already: nothing changes";
    return;
  }
  if (!is_idle(job) || e.attempt != next_number(job)) return stop_unexpected(out, e.attempt);
  Attempt& attempt = add_attempt(job, e.attempt);
  attempt.started_at = at;
  attempt.handle = e.handle;
  attempt.ranks.resize(job.world_size);
  for (std::size_t r = 0; r < attempt.ranks.size(); ++r) {
    Rank& rank = attempt.ranks[r];
    rank.node = e.node;
    rank.pid = r < e.pids.size() ? e.pids[r] : 0;
    if (job.is_command) rank.state = RankState::kRunning;  // it has nothing to say
  }
  job.state = JobState::kRunning;
  out.text = attempt_text(e.attempt) + " started" + (e.node.empty() ? "" : " on " + plain_words(e.node)) + " (" +
             attempt.reason_started + ")";
  note_joined(out, attempt, at);
}

void on(Applied& out, const AttemptLaunchFailed& e, Time at) {
  Job& job = out.job;
  if (!is_idle(job) || e.attempt != next_number(job)) {
    out.text = attempt_text(e.attempt) + " was not expected to start: nothing changes";
    return;
  }
  Attempt& attempt = add_attempt(job, e.attempt);
  attempt.cause = e.retryable ? Cause::kControllerLost : Cause::kFailed;
  attempt.reason = "could not be started: " + plain_words(e.reason);
  if (e.retryable) return end_attempt(out, at);
  attempt.state = AttemptState::kEnded;
  attempt.ended_at = at;
  end_job(job, JobState::kFailed, attempt.reason + " (trying again cannot help)", at);
  out.text = job.reason;
}

void on(Applied& out, const RankJoined& e, Time at) {
  Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return late(out, e.attempt);
  Rank* rank = alive(*attempt, e.rank);
  if (rank == nullptr) return late(out, e.attempt, e.rank);
  if (rank->state == RankState::kStarting) rank->state = RankState::kRunning;
  if (!e.node.empty()) rank->node = e.node;
  if (e.pid != 0) rank->pid = e.pid;
  out.text = rank_text(e.rank) + " joined";
  note_joined(out, *attempt, at);
}

void on(Applied& out, const AttemptResumed& e, Time) {
  Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return late(out, e.attempt);
  const std::string where = e.step > 0 ? "resumed from step " + std::to_string(e.step) : "began at step 0";
  attempt->resumed_from_step = e.step;
  if (e.step > 0 || e.attempt > 1) attempt->reason_started += "; " + where;
  out.text = attempt_text(e.attempt) + " " + where;
}

void on(Applied& out, const CheckpointSaved& e, Time) {
  if (alive(out.job, e.attempt) == nullptr) return late(out, e.attempt);
  out.text = "checkpoint saved at step " + std::to_string(e.step);
  if (e.step <= out.job.last_checkpoint_step) return;
  out.job.last_checkpoint_step = e.step;
  refill_budgets(out.job);
}

void on(Applied& out, const RankExited& e, Time at) {
  Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return late(out, e.attempt);
  Rank* rank = alive(*attempt, e.rank);
  if (rank == nullptr) return late(out, e.attempt, e.rank);
  rank->state = RankState::kExited;
  rank->exit = e.exit;
  rank->last_words = plain_words(e.last_words);

  const std::size_t left = ranks_left(*attempt);
  const Cause cause = cause_of_exit(e.exit, e.out_of_memory);
  out.text = exit_text(e);
  if (attempt->cause == Cause::kNone && cause != Cause::kCompleted) {
    const Verdict verdict{cause, exit_text(e), cause == Cause::kPreempted, e.rank, e.exit};
    if (left > 0) return drain(out, verdict);
    attempt->cause = verdict.cause;
    attempt->reason = verdict.reason;
    attempt->culprit = verdict.culprit;
    attempt->culprit_exit = verdict.culprit_exit;
  }
  if (left > 0) return note_joined(out, *attempt, at);
  if (attempt->cause == Cause::kNone) {
    attempt->cause = Cause::kCompleted;
    attempt->reason = "every rank exited with 0";
  }
  end_attempt(out, at);
}

/// A rank that no longer takes part, though its process may be there.
template <typename Lost>
void on_lost_rank(Applied& out, const Lost& e, Cause cause, RankState state, const std::string& reason) {
  Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return late(out, e.attempt);
  Rank* rank = alive(*attempt, e.rank);
  if (rank == nullptr) return late(out, e.attempt, e.rank);
  if (attempt->state == AttemptState::kDraining) {
    out.text = reason + "; " + attempt_text(e.attempt) + " is stopping already";
    return;
  }
  rank->state = state;
  drain(out, {cause, reason, false, e.rank, std::nullopt});
}

void on(Applied& out, const RankSilent& e, Time) {
  on_lost_rank(out, e, Cause::kRankSilent, RankState::kSilent, silent_text(e));
}

void on(Applied& out, const RankHung& e, Time) {
  on_lost_rank(out, e, Cause::kRankHung, RankState::kSilent, hung_text(e));
}

void on(Applied& out, const TimeLimitReached& e, Time) {
  const Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return late(out, e.attempt);
  if (attempt->state == AttemptState::kDraining) {
    out.text = "time limit reached; " + attempt_text(e.attempt) + " is stopping already";
    return;
  }
  const Millis limit = out.job.time_limit;
  drain(out, {Cause::kTimedOut, "time limit" + (limit > Millis{0} ? " of " + duration_text(limit) : "") + " reached",
              true, std::nullopt, std::nullopt});
}

void on(Applied& out, const AttemptGone& e, Time at) {
  Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return late(out, e.attempt);
  if (attempt->cause == Cause::kNone) {
    const std::string words = plain_words(e.reason);
    attempt->cause = e.cause == Cause::kNone ? Cause::kControllerLost : e.cause;
    attempt->reason = words.empty() ? "the executor says: " + std::string(to_string(attempt->cause)) : words;
  }
  end_attempt(out, at);
}

void on(Applied& out, const CancelRequested& e, Time at) {
  Job& job = out.job;
  if (is_ended(job.state) || job.cancel_requested) {
    out.text = person(e.user) + " asked to cancel; the job is " + std::string(to_string(job.state)) +
               (job.cancel_requested && !is_ended(job.state) ? " for that already" : "") + ": nothing changes";
    return;
  }
  job.cancel_requested = true;
  job.cancelled_by = person(e.user);
  job.requeue_requested = false;
  const std::string reason = "cancelled by " + job.cancelled_by;
  out.text = reason;
  if (is_idle(job)) {
    end_job(job, JobState::kCancelled, reason, at);
    // It may be starting this very moment, or have been started before a crash: what was started is stopped.
    out.actions.push_back(StopAttempt{next_number(job), false, reason});
  } else if (job.attempts.back().state == AttemptState::kDraining) {
    job.reason = reason + "; " + job.reason;
    out.text += "; " + attempt_text(job.attempts.back().number) + " is stopping already";
  } else {
    drain(out, {Cause::kCancelled, reason, true, std::nullopt, std::nullopt});
  }
}

void on(Applied& out, const RequeueRequested& e, Time at) {
  Job& job = out.job;
  const std::string reason = "requeued by " + person(e.user);
  out.text = reason;
  if (!refuse_requeue(job).empty()) {
    out.text =
        person(e.user) + " asked to requeue; the job is " + std::string(to_string(job.state)) + ": nothing changes";
  } else if (job.state == JobState::kRunning) {
    drain(out, {Cause::kRequeued, reason, true, std::nullopt, std::nullopt});
  } else if (job.requeue_requested || (job.state == JobState::kStopping && job.current()->cause == Cause::kRequeued)) {
    out.text += "; that is under way already";
  } else if (job.state == JobState::kStopping) {
    job.requeue_requested = true;
    job.reason = reason + "; " + job.reason;
    out.text += "; attempt " + std::to_string(next_number(job)) + " starts when this one has stopped";
  } else {
    const std::string after = job.attempts.empty() ? "" : job.attempts.back().reason;
    if (job.state == JobState::kFailed) refill_budgets(job);
    wait_for_next(out, at, reason + (after.empty() ? "" : " after: " + after));
    job.reason = reason + "; attempt " + std::to_string(next_number(job)) + " starts now";
    out.text = job.reason;
  }
}

}  // namespace

Applied apply(Job now, const Event& event) {
  Applied out{std::move(now), {}, ""};
  ++out.job.version;
  std::visit([&](const auto& body) { on(out, body, event.at); }, event.body);
  return out;
}

}  // namespace core
