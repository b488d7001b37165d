#pragma once

#include <optional>
#include <string>

#include "core/apply.h"

namespace core {

// How an attempt leaves, and what that means for its job. Private to apply.cpp.

/// Why an attempt must end. The first verdict wins; later ones change nothing.
struct Verdict {
  Cause cause = Cause::kNone;
  std::string reason;
  /// Whether ranks are given the time to finish the step and save.
  bool save = false;
  std::optional<RankNumber> culprit;
  std::optional<ExitStatus> culprit_exit;
};

/// How many ranks of the attempt are still there.
std::size_t ranks_left(const Attempt& attempt);

/// Writes the verdict down and asks the ranks that are left to leave.
void drain(Applied& out, const Verdict& verdict);

/// No rank is left: the attempt is over and its cause decides what follows.
void end_attempt(Applied& out, Time at);

/// The job waits for its next attempt, which starts at `at` or later.
void wait_for_next(Applied& out, Time at, std::string reason_started);

/// A person wants a fresh start: every budget is full again.
void refill_budgets(Job& job);
/// The counts of ends alone: neither the backoff nor the errors that are compared.
void refill_spent(Job& job);

/// The job is over.
void end_job(Job& job, JobState state, std::string reason, Time at);

}  // namespace core
