#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/event.h"

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

/// How soon after its start a failure is quick.
inline constexpr Millis kQuick{60000};
/// True if a rank failed with an error of its own (see is_surely_an_error), within kQuick of the attempt's start, and
/// nothing was saved. The same words again at the same step, where nothing has changed meanwhile, are most likely to
/// come a third time: RequeuePolicy::max_same_error counts such ends in a row. Files that a short attempt leaves are no
/// save.
bool is_quick_failure(const Job& job, const Attempt& attempt, Time ended_at);
/// Whether two errors are the same but for what differs in every run: addresses, process ids, temporary names.
bool same_error(std::string_view a, std::string_view b);

/// What files are worth that a program which reports nothing has left in its checkpoint folder.
enum class FilesWorth {
  kNothing,   // a short attempt left only names that were there before
  kBudgets,   // a short attempt left a new name: the budgets refill; the backoff grows and errors are compared all the
              // same
  kProgress,  // the attempt ran for some time: as good as a new checkpoint
};
/// An attempt is short that ended within kQuick of its start, or within healthy_after where that is less. Many programs
/// write a file at each start (their configuration, say); one that fails right after it must not be started for ever.
FilesWorth worth_of_files(const RequeuePolicy& policy, const Attempt& attempt, const CheckpointFolderSeen& seen,
                          Time at);

/// min(backoff_max, backoff_initial * 2^(unhealthy_ends - 1)); 0 for no unhealthy end.
Millis backoff(const RequeuePolicy& policy, std::uint32_t unhealthy_ends);

/// True if the attempt ran (all ranks there) for healthy_after when it ended at `at`.
bool ran_healthily(const RequeuePolicy& policy, const Attempt& attempt, Time at);

}  // namespace core
