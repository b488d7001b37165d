#pragma once

#include <cstdint>
#include <optional>

#include "core/job.h"

namespace core {

/// How often in a row this cause may bring a job back; nullopt for causes without a budget: kRequeued (always comes
/// back), kCompleted, kCancelled and kNone (never).
std::optional<std::uint32_t> budget(const RequeuePolicy& policy, Cause cause);

/// False for causes that say nothing bad about the job: kPreempted and kNodeFailed start again at once, and so do
/// kTimedOut and kRequeued of an attempt that saved.
bool has_backoff(Cause cause, bool saved_anew);

/// An attempt that asks to be started again, though it brought nothing new, is no victim when it ends this soon.
inline constexpr Millis kHasty{10000};
/// True if it ended within kHasty of its start, without a new checkpoint, in one of two ways. A rank asked for it with
/// kExitRequeue: a program that always does so would be started for ever; what a scheduler says of a preemption is
/// believed. Or a node failed, and not for the first time `in_a_row`: nodes that cannot even start it may be many, and
/// with each try the cluster drains another.
bool is_hasty(const Attempt& attempt, bool saved_anew, std::uint32_t in_a_row, Time ended_at);

/// min(backoff_max, backoff_initial * 2^(unhealthy_ends - 1)); 0 for no unhealthy end.
Millis backoff(const RequeuePolicy& policy, std::uint32_t unhealthy_ends);

/// True if the attempt ran (all ranks there) for healthy_after when it ended at `at`.
bool ran_healthily(const RequeuePolicy& policy, const Attempt& attempt, Time at);

}  // namespace core
