#pragma once

#include <optional>
#include <string>

#include "core/apply.h"

namespace core {

// How an attempt ends, and what that means for its job. Private to core.

/// Why an attempt must end. The first verdict wins. Later ones change nothing.
struct Verdict {
  Cause cause = Cause::kNone;
  std::string reason;
  /// True: the ranks get time to finish the step and save.
  bool save = false;
  std::optional<RankNumber> culprit;
  std::optional<ExitStatus> culprit_exit;
};

/// How many ranks of the attempt have not exited.
std::size_t ranks_left(const Attempt& attempt);

/// Records the verdict and asks the remaining ranks to leave.
void drain(Applied& out, const Verdict& verdict);

/// Ends an attempt that has no rank left. Its cause decides what the job does next.
void end_attempt(Applied& out, Time at);

/// Lets the job wait for its next attempt, which starts at `at` or later.
void wait_for_next(Applied& out, Time at, std::string reason_started);

/// After healthy progress or a person's requeue: refills every budget, resets the backoff, forgets the last error.
void refill_budgets(Job& job);
/// Refills every budget, but leaves the backoff and the last error as they are.
void refill_spent(Job& job);

void end_job(Job& job, JobState state, std::string reason, Time at);

}  // namespace core
