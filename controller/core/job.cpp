#include "core/job.h"

namespace core {

bool is_upcoming(const Job& job, AttemptNumber number) {
  if (job.cancel_requested || is_ended(job.state) || !job.dependencies_met()) return false;
  const auto* newest = job.current();
  if (newest != nullptr && newest->number == number) {
    return newest->state == AttemptState::kStarting && !newest->started_at && !newest->queued_at;
  }
  const bool between = newest == nullptr || newest->state == AttemptState::kEnded;
  return between && number == (newest == nullptr ? 1 : newest->number + 1);
}

bool leaves_with_save(Cause cause) {
  return cause == Cause::kCancelled || cause == Cause::kRequeued || cause == Cause::kTimedOut ||
         cause == Cause::kPreempted;
}

}  // namespace core
