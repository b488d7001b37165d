#pragma once

#include <cstdint>
#include <optional>

#include "core/job.h"

namespace core {

/// How often in a row this cause may bring a job back; nullopt for causes without a budget: kRequeued (always comes
/// back), kCompleted, kCancelled and kNone (never).
std::optional<std::uint32_t> budget(const RequeuePolicy& policy, Cause cause);

/// False for causes that say nothing bad about the job: kPreempted, kRequeued and kNodeFailed start again at once, and
/// so does kTimedOut of an attempt that saved.
bool has_backoff(Cause cause, bool saved_anew);

/// An attempt that asks to be started again, though it brought nothing new, is no victim when it ends this soon.
inline constexpr Millis kHasty{10000};
/// True if a rank asked for it with kExitRequeue within kHasty of the attempt's start, without a new checkpoint: a
/// program that always does so would be started for ever. What a scheduler says of a preemption is believed.
bool is_hasty(const Attempt& attempt, bool saved_anew, Time ended_at);

/// min(backoff_max, backoff_initial * 2^(unhealthy_ends - 1)); 0 for no unhealthy end.
Millis backoff(const RequeuePolicy& policy, std::uint32_t unhealthy_ends);

/// True if the attempt ran (all ranks there) for healthy_after when it ended at `at`.
bool ran_healthily(const RequeuePolicy& policy, const Attempt& attempt, Time at);

}  // namespace core
