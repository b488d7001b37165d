#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/event.h"

namespace core {

/// What a state change asks of the outside world. Stored in the same transaction as the event that asked, performed at
/// least once, idempotent: performing one twice, or late, does no harm.
struct StartAttempt {
  AttemptNumber attempt = 0;
  Time not_before{};  // backoff
  bool operator==(const StartAttempt&) const = default;
};
/// Ask every rank to leave; kill what is left after the grace period.
struct StopAttempt {
  AttemptNumber attempt = 0;
  /// true: ranks finish the step, save and leave, within the job's own grace (cancel, requeue, time limit).
  /// false: a gang that has lost a rank can't finish its step, so the others get a short grace only.
  bool save = false;
  std::string reason;
  bool operator==(const StopAttempt&) const = default;
};
/// Keep a queued attempt from starting, or let it start again.
struct HoldAttempt {
  AttemptNumber attempt = 0;
  bool hold = true;
  bool operator==(const HoldAttempt&) const = default;
};
/// The scheduler must know the job's new time limit.
struct LimitAttempt {
  AttemptNumber attempt = 0;
  Millis time_limit{0};
  bool operator==(const LimitAttempt&) const = default;
};
/// Delete the metrics and files of a removed job.
struct RemoveFiles {
  bool operator==(const RemoveFiles&) const = default;
};
using Action = std::variant<StartAttempt, StopAttempt, HoldAttempt, LimitAttempt, RemoveFiles>;

struct Applied {
  Job job;
  std::vector<Action> actions;
  /// What happened and what follows, for people: "rank 1 killed by SIGKILL; attempt 2 starts in 1 s (failure 1 of 3)".
  std::string text;
};

/// The whole life of a job: pure, total (every state takes every event), no clock, so that replaying the log rebuilds
/// the state. Late news about an ended attempt, and requests that the state does not allow, change nothing but version.
/// One exception: AttemptLaunched of an attempt that must not run (cancelled meanwhile, or not the one expected) is
/// answered with StopAttempt, so that nothing ever runs unwatched.
Applied apply(Job now, const Event& event);

/// Why a person's request is refused in this state, with what to do instead; empty if it is fine.
std::string refuse_cancel(const Job& job);
std::string refuse_requeue(const Job& job);
std::string refuse_hold(const Job& job);
std::string refuse_release(const Job& job);
std::string refuse_time_limit(const Job& job);
std::string refuse_remove(const Job& job);
/// "job 7 was removed by ada"; empty: it was not. To everybody but its history, the job is gone then.
std::string removed_text(const Job& job);

/// What a request that is not refused does, for the question before it: whole sentences.
std::string effect_of_cancel(const Job& job);
std::string effect_of_requeue(const Job& job);

}  // namespace core
