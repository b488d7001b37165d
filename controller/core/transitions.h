#pragma once

#include <optional>

#include "controller/core/apply.h"

namespace core {

// The changes of state that several kinds of events share. Private to core.

// job_events.cpp: submit, requests of people, and ends of other jobs.
void on(Applied& out, const JobSubmitted& e, Time at);
void on(Applied& out, const CancelRequested& e, Time at);
void on(Applied& out, const RequeueRequested& e, Time at);
void on(Applied& out, const HoldRequested& e, Time at);
void on(Applied& out, const ReleaseRequested& e, Time at);
void on(Applied& out, const TimeLimitChanged& e, Time at);
void on(Applied& out, const DependencyEnded& e, Time at);
void on(Applied& out, const JobRemoved& e, Time at);

AttemptNumber next_number(const Job& job);
/// How many ranks of the attempt have not exited.
std::size_t ranks_left(const Attempt& attempt);

/// How many ranks of a starting attempt have not joined.
std::size_t ranks_missing(const Attempt& attempt);
/// The cause that the scheduler tells. It tells none for a preemption of some versions.
Cause cause_of(const AttemptStopping& event);

/// Why an attempt must end. The first verdict wins. Later ones change nothing.
struct Verdict {
  Cause cause = Cause::kNone;
  /// True: the ranks get time to finish the step and save.
  bool save = false;
  std::optional<RankNumber> culprit = {};
  std::optional<ExitStatus> culprit_exit = {};
};
/// Notes the verdict as the cause of the newest attempt's end.
void record(Applied& out, const Verdict& verdict);

/// Records the verdict and asks the remaining ranks to leave. An attempt that is stopping already keeps its verdict.
void drain(Applied& out, const Verdict& verdict);

/// Ends an attempt that has no rank left. Its cause decides what the job does next.
void end_attempt(Applied& out, Time at);

/// Lets the job wait for its next attempt, which starts at `at` or later.
void wait_for_next(Applied& out, Time at);

/// After healthy progress or a person's requeue: refills every budget, resets the backoff, forgets the last error. `by`
/// tells what the budgets count from now.
void refill_budgets(Job& job, Refill by);
/// Refills every budget, but leaves the backoff and the last error as they are.
void refill_spent(Job& job, Refill by);

void end_job(Job& job, JobState state, Time at);

/// sentences.cpp: makes the sentences of what the event did: the text, and the reasons of job, attempt and actions.
void tell(Applied& out, const Event& event);

}  // namespace core
