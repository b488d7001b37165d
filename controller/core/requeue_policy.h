#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "controller/core/event.h"

namespace core {

/// Cases in which the attempt after an end waits.
enum class Backoff { kAlways, kUnlessSaved, kNever };
/// The ranks that muster ends itself when an attempt ends.
enum class Stopped { kNobody, kEveryRank, kOtherRanks };  // kOtherRanks: all but the culprit

/// The consequences of a cause.
struct CauseRule {
  Cause cause;
  /// How often in a row the cause may bring a job back. Null for causes without a budget: a job always comes back after
  /// kRequeued, and never after kCompleted, kCancelled or kNone.
  std::uint32_t RequeuePolicy::*budget = nullptr;
  std::string_view noun = "failure";  // for one end by this cause, as in "failure 1 of 3"
  std::string_view verb = "failed";   // for an end by this cause, as in "failed 4 times without progress"
  Backoff backoff = Backoff::kAlways;
  Stopped stopped = Stopped::kNobody;
  bool leaves_with_save = false;
};
const CauseRule& rule_of(Cause cause);

/// The attempt's cause, if this exit is the first thing that went wrong.
Cause cause_of_exit(const ExitStatus& exit, bool out_of_memory);

/// The policy's budget of the cause; nullopt: the cause has none.
std::optional<std::uint32_t> budget(const RequeuePolicy& policy, Cause cause);
/// False for ends that are not the job's fault. After kPreempted and kNodeFailed the next attempt starts at once. After
/// kTimedOut and kRequeued it starts at once if the ended attempt saved.
bool has_backoff(Cause cause, bool saved_anew);

/// How soon after its start an end is hasty.
inline constexpr Millis kHasty{10000};
/// True for a hasty end, which gets a backoff although has_backoff() is false for its cause. The attempt ended within
/// kHasty of its start and saved nothing new, in one of two ways:
/// - A rank asked for a requeue with kExitRequeue. A program that always does so would be started for ever. A
///   preemption that the scheduler reports is never hasty.
/// - A node failed, and this is not the first such end `in_a_row`. Many nodes may be unable to start the attempt, and
///   with each try the cluster drains another one.
bool is_hasty(const Attempt& attempt, bool saved_anew, std::uint32_t in_a_row, Time ended_at);

/// How soon after its start a failure is quick.
inline constexpr Millis kQuick{60000};
/// True if a rank failed with a sure error (see is_surely_an_error) within kQuick of the attempt's start, or before any
/// rank had told a step, and the attempt saved nothing. The same error at the same step is likely to come again, so
/// RequeuePolicy::max_same_error limits such ends in a row. Files of a short attempt are no save; see FilesWorth.
bool is_quick_failure(const Job& job, const Attempt& attempt, Time ended_at);
/// True if the program is known to tell its steps, by what it has told or by its job file, and a rank failed with a
/// sure error before the first of them. Then the attempt was still starting, however long it ran.
bool failed_while_starting(const Job& job, const Attempt& attempt);
/// How long a start without a told step can take, of a program that nobody knows to tell steps.
inline constexpr Millis kLongestStart{1'800'000};
/// True if an attempt of a command that has never told a step failed with a sure error, saved nothing, and ran longer
/// than healthy_after and at most kLongestStart. It may have been starting all the time, or training in silence. The
/// same error that comes so late again, to a tenth, shows that it was the start: RequeuePolicy::max_same_error counts
/// it.
bool may_be_a_long_start(const Job& job, const Attempt& attempt, Time ended_at);
/// True if two attempts took the same time, to a tenth.
bool took_as_long(Millis a, Millis b);

/// True if two errors say the same, but for what differs in every run: addresses, ports, process ids, temporary names,
/// times of day and durations. `attempt_step` as of RankExited: an earlier muster took ports below 1000 and the
/// addresses of nodes for a difference.
bool same_error(std::string_view a, std::string_view b, std::uint32_t rules = kErrorRules, Step attempt_step = 0);

/// The worth of new files in the checkpoint folder, when the program reports nothing.
enum class FilesWorth {
  kNothing,   // a short attempt left only names that were there before
  kBudgets,   // a short attempt left a new name: budgets refill, but the backoff grows and errors are still compared
  kProgress,  // the attempt was not short: the files count as a new checkpoint
};
/// An attempt is short if it ended within kQuick of its start, or within healthy_after if that is less. Many programs
/// write a file at each start, such as their configuration. A program that fails right after it must not be started for
/// ever.
FilesWorth worth_of_files(const RequeuePolicy& policy, const Attempt& attempt, const CheckpointFolderSeen& seen,
                          Time at);

/// min(backoff_max, backoff_initial * 2^(unhealthy_ends - 1)); 0 for no unhealthy end.
Millis backoff(const RequeuePolicy& policy, std::uint32_t unhealthy_ends);

/// True if the attempt had run for healthy_after, with all ranks joined, when it ended at `at`.
bool ran_healthily(const RequeuePolicy& policy, const Attempt& attempt, Time at);

}  // namespace core
