#pragma once

#include <cstdint>
#include <optional>

#include "core/job.h"

namespace core {

/// How often in a row this cause may bring a job back; nullopt for causes without a budget: kRequeued (always comes
/// back), kCompleted, kCancelled and kNone (never).
std::optional<std::uint32_t> budget(const RequeuePolicy& policy, Cause cause);

/// False for causes that say nothing bad about the job: kPreempted and kRequeued start again at once.
bool has_backoff(Cause cause);

/// min(backoff_max, backoff_initial * 2^(unhealthy_ends - 1)); 0 for no unhealthy end.
Millis backoff(const RequeuePolicy& policy, std::uint32_t unhealthy_ends);

/// True if the attempt ran (all ranks there) for healthy_after when it ended at `at`.
bool ran_healthily(const RequeuePolicy& policy, const Attempt& attempt, Time at);

}  // namespace core
