#include "controller/core/apply.h"
#include "controller/core/transitions.h"

namespace core {

namespace {

std::string name_of(const Job& job) {
  return "job " + std::to_string(job.id);
}

std::string how_to_submit_again(const Job& job) {
  return "to run it once more, muster submit --like " + std::to_string(job.id);
}

/// Empty: the job goes on.
std::string how_it_ends(const Job& job) {
  if (is_ended(job.state)) return name_of(job) + " has ended (" + std::string(to_string(job.state)) + ")";
  return job.cancel_requested ? name_of(job) + " is being cancelled" : "";
}

std::string refuse(const Job& job, const CancelRequested&) {
  if (!is_ended(job.state)) return "";
  return name_of(job) + " has " + (job.state == JobState::kCancelled ? "been " : "") +
         std::string(to_string(job.state)) + " already: there is nothing to cancel";
}

std::string refuse(const Job& job, const RequeueRequested&) {
  if (job.removed_at) return removed_text(job);
  if (job.cancel_requested || job.state == JobState::kCancelled) {
    return name_of(job) + " was cancelled and never comes back: " + how_to_submit_again(job);
  }
  switch (job.state) {
    case JobState::kPending:
      return name_of(job) + " has not started yet: there is nothing to start again";
    case JobState::kQueued:
      return name_of(job) + " waits in the scheduler's queue: there is nothing to start again";
    case JobState::kSucceeded:
      return name_of(job) + " has succeeded: " + how_to_submit_again(job);
    default:
      return "";
  }
}

std::string refuse(const Job& job, const HoldRequested&) {
  const auto end = how_it_ends(job);
  return end.empty() ? "" : end + ": there is nothing to hold";
}

std::string refuse(const Job& job, const ReleaseRequested&) {
  if (is_ended(job.state)) return how_it_ends(job) + ": there is nothing to release";
  return job.held ? "" : name_of(job) + " is not held";
}

std::string refuse(const Job& job, const TimeLimitChanged&) {
  const auto end = how_it_ends(job);
  return end.empty() ? "" : end + ": its time limit can't be changed";
}

std::string refuse(const Job& job, const JobRemoved&) {
  if (job.removed_at) return removed_text(job);
  if (is_ended(job.state)) return "";
  return name_of(job) + " is " + std::string(to_string(job.state)) + ": only a job that has ended can be removed; " +
         (job.cancel_requested ? "wait until it is cancelled" : "cancel it first");
}

}  // namespace

std::string refusal_of(const Job& job, const EventBody& request) {
  return std::visit(
      [&](const auto& e) -> std::string {
        if constexpr (requires { refuse(job, e); }) return refuse(job, e);
        return "";
      },
      request);
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
