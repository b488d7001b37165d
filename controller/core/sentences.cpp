#include <algorithm>

#include "controller/core/core_text.h"
#include "controller/core/requeue_policy.h"
#include "controller/core/transitions.h"

namespace core {

// The sentences of the state machine. say() has one function for each kind of event: it tells what the event did when
// that is not the end of an attempt. why() has one for each that can end an attempt.

namespace {

using Kind = Effect::Kind;

constexpr std::string_view kNothingChanges = ": nothing changes";

std::string why(const Applied& out, const RankExited& e) {
  const Attempt& attempt = out.job.attempts.back();
  if (attempt.cause == Cause::kCompleted) {
    const auto& words = attempt.ranks.front().last_words;
    return "every rank exited with 0" + (words.empty() ? "" : ": " + words);
  }
  // muster may have ended this rank before it could leave by itself.
  return out.effect.is_first_cause && e.exit.signal != 0 ? failed_text(e) : exit_text(e);
}
std::string why(const Applied&, const RankSilent& e) {
  return silent_text(e);
}
std::string why(const Applied&, const RankHung& e) {
  return hung_text(e);
}
std::string why(const Applied&, const NodeLost& e) {
  return node_lost_text(e);
}
std::string why(const Applied& out, const TimeLimitReached&) {
  const bool known = out.effect.kind == Kind::kDrains && out.job.time_limit > Millis{0};
  return "time limit" + (known ? " of " + duration_text(out.job.time_limit) : "") + " reached";
}
std::string why(const Applied&, const AttemptStopping& e) {
  const std::string words = plain_words(e.reason);
  return words.empty() ? "the scheduler says: " + std::string(to_string(cause_of(e))) : words;
}
std::string why(const Applied& out, const AttemptGone& e) {
  const std::string words = plain_words(e.reason);
  return words.empty() ? "the executor says: " + std::string(to_string(out.job.attempts.back().cause)) : words;
}
std::string why(const Applied&, const AttemptLaunchFailed& e) {
  return std::string("could not be started") + (e.retryable ? "" : ", and trying again cannot help") + ": " +
         plain_words(e.reason);
}
std::string why(const Applied& out, const CancelRequested&) {
  return "cancelled by " + out.job.cancelled_by;
}
std::string why(const Applied&, const RequeueRequested& e) {
  return "requeued by " + person(e.user);
}

/// "attempt 2: waiting for 1 rank to join".
std::string of_attempt(const Attempt& attempt) {
  return attempt_text(attempt.number) + ": " + attempt.reason;
}

std::string refill_text(const Job& job) {
  switch (job.refilled.by) {
    case Refill::By::kStart:
      break;
    case Refill::By::kCheckpoint:
      return "checkpoint " + std::to_string(job.refilled.number);
    case Refill::By::kFiles:
      return "new files in the checkpoint folder";
    case Refill::By::kHealthyRun:
      return "attempt " + std::to_string(job.refilled.number) + " ran for " + duration_text(job.policy.healthy_after);
    case Refill::By::kRequeue:
      return "the requeue";
  }
  return {};
}

/// " (failure 1 of 3 since checkpoint 400)".
std::string budget_text(const Job& job, Cause cause) {
  const auto since = refill_text(job);
  return " (" + std::string(rule_of(cause).noun) + " " + std::to_string(job.spent.at(cause)) + " of " +
         std::to_string(budget(job.policy, cause).value_or(0)) + (since.empty() ? "" : " since " + since) + ")";
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

/// Why the job is not tried again. `reason` is short, since lists show it; `text` is the event's full sentence.
struct Spent {
  std::string reason, text;
};

Spent spent_budget(const Job& job, Cause cause) {
  const auto limit = budget(job.policy, cause).value_or(0);
  const auto text = limit == 0 ? "requeue.max_" + std::string(to_string(cause)) + " is 0"
                               : std::string(rule_of(cause).verb) + " " + times_text(job.spent.at(cause)) +
                                     progress_text(job) + " (limit " + std::to_string(limit) + ")";
  return {text, text};
}

/// How soon the attempt failed; see is_quick_failure().
std::string when_text(Millis took, bool was_long_start) {
  if (took < kQuick) return "within a minute of its start";
  if (!was_long_start) return "before its first step";
  return "about " + duration_text(took) + " after its start, without a step told";
}

Spent same_error_too_often(const Job& job, const Attempt& ended, bool was_long_start) {
  const std::string limit = " (requeue.max_same_error is " + std::to_string(job.policy.max_same_error) + ")";
  const std::string when = when_text(job.last_error_after, was_long_start), last = "; not tried again";
  if (job.same_errors == 1) return {"not tried again" + limit, "it failed " + when + last + limit};
  const std::string times = job.same_errors == 2 ? "twice" : times_text(job.same_errors);
  const std::string where = ended.error_step > 0 ? " at step " + std::to_string(ended.error_step) : "";
  return {"same error " + times + last, "the same error " + times + " in a row" + where + ", each " + when +
                                            (job.reports() ? " without progress" : "") + last + limit};
}

void say_drained(Applied& out, const std::string& reason) {
  Job& job = out.job;
  auto& stop = std::get<StopAttempt>(out.actions.back());
  stop.reason = reason;
  const std::string left = count_text(ranks_left(job.attempts.back()), "rank");
  job.reason = reason + (out.effect.from_queue ? "; leaving the queue"
                         : stop.save           ? "; waiting for " + left + " to save and leave"
                                               : "; stopping " + left);
  out.text = job.reason;
}

void say_ended(Applied& out, Time at) {
  Job& job = out.job;
  const Attempt& ended = job.attempts.back();
  job.reason = out.text = ended.reason;
  if (job.state == JobState::kCancelled && job.cancel_requested) {
    job.reason = out.text = "cancelled by " + job.cancelled_by;
  } else if (job.state == JobState::kWaiting) {
    // The event's text tells the wait ("in 5 s"), since an event has a time. The job's reason tells the time of the
    // start, since the reason stays while time passes.
    job.next_attempt_reason = of_attempt(ended);
    const Millis wait = *job.next_attempt_at - at;
    const std::string what = ended.reason + "; " + attempt_text(ended.number + 1) + " ";
    const std::string budget = out.effect.is_charged ? budget_text(job, ended.cause) : "";
    out.text = what + starts_text(job, wait) + budget;
    job.reason = what + starts_at_text(job, wait) + budget;
  } else if (out.effect.given_up != GivenUp::kNo) {
    const Spent spent = out.effect.given_up == GivenUp::kBudget
                            ? spent_budget(job, ended.cause)
                            : same_error_too_often(job, ended, out.effect.was_long_start);
    job.reason += "; " + spent.reason;
    out.text += "; " + spent.text;
  }
}

/// The reason of an attempt whose ranks join, and of its job.
void say_joined(Applied& out) {
  Attempt& attempt = out.job.attempts.back();
  if (out.effect.all_joined) {
    attempt.reason = "running";
    if (!out.job.is_command) out.text += "; every rank has joined";
  } else if (attempt.state == AttemptState::kStarting) {
    attempt.reason = "waiting for " + count_text(ranks_missing(attempt), "rank") + " to join";
  } else {
    return;
  }
  out.job.reason = of_attempt(attempt);
}

/// The reason of a job without an attempt that may start now, or must wait.
void say_when_it_starts(Job& job, Time at) {
  if (!is_idle(job)) return;
  const Millis wait = std::max(at, job.next_attempt_at.value_or(at)) - at;
  job.reason =
      job.may_start() ? attempt_text(next_number(job)) + " " + starts_at_text(job, wait) : what_it_waits_for(job);
}

/// Tells that the state of the job does not allow the request.
void say_refused(Applied& out, const std::string& user, std::string_view asked, std::string_view state) {
  out.text = person(user) + " asked ";
  out.text.append(asked).append("; the job is ").append(state).append(kNothingChanges);
}

void say(Applied& out, const JobSubmitted& e, Time) {
  Job& job = out.job;
  if (out.effect.kind == Kind::kNothing) {
    out.text = "submitted already" + std::string(kNothingChanges);
    return;
  }
  job.reason = job.may_start() ? "waiting for its first attempt" : what_it_waits_for(job);
  out.text = "submitted by " + person(e.user) + ": " + count_text(e.world_size, "rank") +
             (job.may_start() ? "" : "; " + job.reason);
}

void say(Applied& out, const CancelRequested& e, Time) {
  Job& job = out.job;
  if (out.effect.kind != Kind::kTaken) {
    const bool under_way = out.effect.kind == Kind::kUnderWay;
    return say_refused(out, e.user, "to cancel",
                       std::string(to_string(job.state)) + (under_way ? " for that already" : ""));
  }
  job.reason = out.text = why(out, e);
  std::get<StopAttempt>(out.actions.back()).reason = out.text;
}

void say(Applied& out, const RequeueRequested& e, Time) {
  Job& job = out.job;
  const std::string reason = why(out, e), next = "; " + attempt_text(next_number(job)) + " ";
  if (out.effect.kind == Kind::kNothing) {
    say_refused(out, e.user, "to requeue", to_string(job.state));
  } else if (out.effect.kind == Kind::kUnderWay) {
    out.text = reason + "; that is under way already";
  } else if (job.state == JobState::kStopping) {
    job.reason = reason + "; " + job.reason;
    out.text = reason + next + "starts when this one has stopped";
  } else {
    const std::string after = job.attempts.empty() ? "" : job.attempts.back().reason;
    job.next_attempt_reason = reason + (after.empty() ? "" : " after: " + after);
    job.reason = out.text = reason + next + starts_text(job, Millis{0});
  }
}

void say(Applied& out, const HoldRequested& e, Time) {
  Job& job = out.job;
  if (out.effect.kind == Kind::kNothing) {
    return say_refused(out, e.user, "to hold", (job.held ? "held" : std::string(to_string(job.state))) + " already");
  }
  out.text = "held by " + job.held_by;
  if (job.state == JobState::kQueued || is_idle(job)) {
    job.reason = what_it_waits_for(job);
  } else {
    out.text += "; this attempt goes on, and no other starts";
  }
}

void say(Applied& out, const ReleaseRequested& e, Time at) {
  Job& job = out.job;
  if (out.effect.kind == Kind::kNothing) return say_refused(out, e.user, "to release", "not held");
  out.text = "released by " + person(e.user);
  if (job.state == JobState::kQueued) job.reason = of_attempt(job.attempts.back());
  say_when_it_starts(job, at);
}

std::string limit_text(Millis limit) {
  return limit > Millis{0} ? "a time limit of " + duration_text(limit) : "no time limit";
}

void say(Applied& out, const TimeLimitChanged& e, Time) {
  const Job& job = out.job;
  if (out.effect.kind == Kind::kNothing) {
    say_refused(out, e.user, "for another time limit", to_string(job.state));
  } else if (job.time_limit_asked) {
    out.text = person(e.user) + " asked for " + limit_text(e.time_limit) + "; the scheduler has not answered yet";
  } else {
    out.text = "time limit set to " + (e.time_limit > Millis{0} ? duration_text(e.time_limit) : "none") + " by " +
               person(e.user);
  }
}

void say(Applied& out, const TimeLimitAnswered& e, Time) {
  Job& job = out.job;
  if (e.refusal.empty()) {
    out.text = "the scheduler has taken " + limit_text(e.time_limit);
    return;
  }
  const std::string kept = job.time_limit > Millis{0} ? duration_text(job.time_limit) + " stays in force"
                                                      : "the job still has no time limit";
  out.text = "the scheduler refuses " + limit_text(e.time_limit) + ": " + plain_words(e.refusal) + "; " + kept;
  if (out.effect.was_asked) job.time_limit_refusal = out.text;
}

void say(Applied& out, const DependencyEnded& e, Time at) {
  Job& job = out.job;
  out.text = "job " + std::to_string(e.job) + " " + std::string(to_string(e.state));
  if (out.effect.kind == Kind::kNothing) {
    out.text += kNothingChanges;
  } else if (is_ended(job.state)) {
    out.text += ", so this job can never start: submit it again without that dependency";
    job.reason = out.text;
  } else {
    say_when_it_starts(job, at);
  }
}

void say(Applied& out, const JobRemoved& e, Time) {
  const Job& job = out.job;
  if (out.effect.kind == Kind::kNothing) {
    return say_refused(out, e.user, "to remove", job.removed_at ? "removed already" : to_string(job.state));
  }
  out.text = "removed by " + job.removed_by;
}

void say(Applied& out, const AttemptLaunched& e, Time) {
  Job& job = out.job;
  out.text = attempt_text(e.attempt);
  if (out.effect.kind == Kind::kNothing) {
    out.text += " has started already" + std::string(kNothingChanges);
    return;
  }
  if (out.effect.kind == Kind::kMustNotRun) {
    out.text += " must not run: the job is " + std::string(to_string(job.state)) +
                (job.attempts.empty() ? "" : " at " + attempt_text(job.attempts.back().number));
    std::get<StopAttempt>(out.actions.back()).reason = out.text;
    out.text += "; stopping it";
    return;
  }
  Attempt& attempt = job.attempts.back();
  const std::string started = " (" + attempt.reason_started + ")";
  if (!e.queued) {
    out.text += " started" + (e.node.empty() ? "" : " on " + plain_words(e.node)) + started;
    return say_joined(out);
  }
  attempt.reason = "queued" + (e.handle.empty() ? "" : " as " + plain_words(e.handle));
  out.text += " " + attempt.reason + started;
  job.reason = job.held ? what_it_waits_for(job) : of_attempt(attempt);
  if (job.held) out.text += "; " + job.reason;
}

void say(Applied& out, const AttemptLaunchFailed& e, Time) {
  out.text = attempt_text(e.attempt) + " was not expected to start" + std::string(kNothingChanges);
}

void say(Applied& out, const AttemptStarted& e, Time) {
  if (out.effect.kind == Kind::kUnderWay) {
    out.text = attempt_text(e.attempt) + " runs on its nodes";
    return;
  }
  std::vector<std::string> nodes;
  for (const auto& node : e.nodes) {
    if (!node.empty() && std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  out.text = attempt_text(e.attempt) + " started";
  for (const auto& node : nodes) out.text += (&node == &nodes.front() ? " on " : ", ") + plain_words(node);
  say_joined(out);
}

void say(Applied& out, const AttemptResumed& e, Time) {
  out.text = attempt_text(e.attempt) +
             (e.step > 0 ? " resumed from step " + std::to_string(e.step) : std::string(" began at step 0")) +
             (out.effect.is_untold ? ", where a checkpoint is that nobody had told of" : "");
}

void say(Applied& out, const CheckpointSaved& e, Time at) {
  out.text = "checkpoint saved at step " + std::to_string(e.step) + saved_text(e, at) +
             (e.path.empty() ? "" : ": " + plain_words(e.path));
}

void say(Applied& out, const ProgramDescribed& e, Time) {
  std::string news;
  if (out.effect.has_new_total) news = count_text(static_cast<std::size_t>(e.total_steps), "step") + " in all";
  if (out.effect.has_new_config) news += std::string(news.empty() ? "" : ", ") + "its settings";
  out.text = "the program told of its run: " + (news.empty() ? std::string("nothing new") : news);
}

void say(Applied& out, const CheckpointFolderSeen& e, Time) {
  if (!e.trouble.empty()) {
    out.text = "it is not known whether " + attempt_text(e.attempt) + " saved anything: " + out.job.unseen_progress;
    return;
  }
  out.text =
      "new in the checkpoint folder: " + plain_words(e.newest) +
      (e.fresh > 1 ? " and " + std::to_string(e.fresh - 1) + " more" : "") +
      (out.effect.is_no_progress ? "; this is no progress: the attempt was short and left no new file name" : "");
}

void say(Applied& out, const RankJoined& e, Time) {
  out.text = "rank " + std::to_string(e.rank) + " joined";
  say_joined(out);
}

void say(Applied& out, const RankExited& e, Time) {
  out.text = exit_text(e);
  if (out.effect.is_first_cause) {
    out.job.reason = out.job.attempts.back().reason;
    out.text += "; this is the first cause";
  }
  say_joined(out);
}

void say(Applied& out, const AttemptSuspected& e, Time at) {
  out.text = suspected_text(e);
  if (out.job.attempts.back().suspicion) out.job.reason = attempt_text(e.attempt) + ": " + suspected_text(e, at);
}

void say(Applied& out, const SuspicionOver& e, Time) {
  out.text = suspicion_over_text(e);
  if (out.effect.kind == Kind::kTaken) out.job.reason = of_attempt(out.job.attempts.back());
}

}  // namespace

void tell(Applied& out, const Event& event) {
  Job& job = out.job;
  if (job.current() != nullptr && job.current()->reason_started.empty())
    job.attempts.back().reason_started = "submitted";
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { e.attempt; }) {
          if (out.effect.kind == Kind::kAttemptOver) out.text = attempt_text(e.attempt) + " is over";
          if constexpr (requires { e.rank; }) {
            if (out.effect.kind == Kind::kRankGone) {
              out.text = "rank " + std::to_string(e.rank) + " of " + attempt_text(e.attempt) + " is gone";
            }
          }
          if (!out.text.empty()) {
            out.text += kNothingChanges;
            return;
          }
        }
        std::string reason;
        if constexpr (requires { why(out, e); }) {
          reason = why(out, e);
          if (out.effect.decides) job.attempts.back().reason = reason;
        }
        switch (out.effect.kind) {
          case Kind::kDrains:
            return say_drained(out, reason);
          case Kind::kDrainsAlready:
            if (std::holds_alternative<CancelRequested>(event.body)) job.reason = reason + "; " + job.reason;
            out.text = reason + "; " + attempt_text(job.attempts.back().number) + " is stopping already";
            return;
          case Kind::kEnds:
            return say_ended(out, event.at);
          default:
            if constexpr (requires { say(out, e, event.at); }) say(out, e, event.at);
        }
      },
      event.body);
}

namespace {

std::string name_of(const Job& job) {
  return "job " + std::to_string(job.id);
}

/// The end of a refusal: "there is nothing to cancel".
std::string nothing_to_do(const EventBody& request) {
  if (std::holds_alternative<CancelRequested>(request)) return "there is nothing to cancel";
  if (std::holds_alternative<HoldRequested>(request)) return "there is nothing to hold";
  if (std::holds_alternative<ReleaseRequested>(request)) return "there is nothing to release";
  return "its time limit can't be changed";
}

}  // namespace

std::string refusal_text(const Job& job, const EventBody& request) {
  const std::string name = name_of(job), state(to_string(job.state));
  const std::string once_more = ": to run it once more, muster submit --like " + std::to_string(job.id);
  switch (refusal_of(job, request)) {
    case Refusal::kNone:
      break;
    case Refusal::kRemoved:
      return removed_text(job);
    case Refusal::kCancelled:
      return name + " was cancelled and never comes back" + once_more;
    case Refusal::kSucceeded:
      return name + " has succeeded" + once_more;
    case Refusal::kNotStarted:
      return name + " has not started yet: there is nothing to start again";
    case Refusal::kInQueue:
      return name + " waits in the scheduler's queue: there is nothing to start again";
    case Refusal::kEnded:
      if (std::holds_alternative<CancelRequested>(request)) {
        const bool been = job.state == JobState::kCancelled;
        return name + " has " + (been ? "been " : "") + state + " already: " + nothing_to_do(request);
      }
      return name + " has ended (" + state + "): " + nothing_to_do(request);
    case Refusal::kEnding:
      return name + " is being cancelled: " + nothing_to_do(request);
    case Refusal::kNotHeld:
      return name + " is not held";
    case Refusal::kNotEnded:
      return name + " is " + state + ": only a job that has ended can be removed; " +
             (job.cancel_requested ? "wait until it is cancelled" : "cancel it first");
  }
  return {};
}

std::string removed_text(const Job& job) {
  return job.removed_at ? name_of(job) + " was removed by " + job.removed_by : "";
}

std::string effect_of_cancel(const Job& job) {
  const std::string what = job.state == JobState::kQueued ? "It leaves the scheduler's queue."
                           : is_idle(job)                 ? "No attempt starts."
                                                          : "Its ranks are asked to save and leave, then stopped.";
  return what + " A cancelled job never comes back.";
}

std::string effect_of_requeue(const Job& job) {
  const std::string next = "ttempt " + std::to_string(next_number(job)) + " starts";
  const std::string when = job.may_start() ? "" : " as soon as the job may start";
  // A command decides by itself where it begins.
  const std::string step = std::to_string(job.last_checkpoint_step);
  const std::string from = job.is_command                  ? "."
                           : job.last_checkpoint_step == 0 ? ", from the beginning."
                                                           : ", from the checkpoint of step " + step + ".";
  if (job.state == JobState::kRunning) return "Its ranks are asked to save and leave. Then a" + next + when + ".";
  if (job.state == JobState::kStopping) {
    return "A" + next + when + " when this one has stopped. It costs no budget.";
  }
  return "A" + next + (when.empty() ? " now" : when) + from +
         (job.state == JobState::kFailed ? " Every budget is refilled." : "");
}

}  // namespace core
