#pragma once

#include <string>
#include <variant>
#include <vector>

#include "controller/core/event.h"

namespace core {

// The story of a job, from submit to requeue.
//
// The runtime turns whatever it learns into an event. apply() folds the event into the job and returns actions. The
// store writes event, job and actions in one transaction. Only then the runtime performs the actions.
//
//  1. A person submits a job: JobSubmitted. The job is kPending and asks for StartAttempt 1. A held job, or one that
//     waits for other jobs, asks for it later: ReleaseRequested, DependencyEnded.
//  2. The executor starts the attempt: AttemptLaunched. On Slurm the job is kQueued until AttemptStarted names the
//     nodes. Otherwise it is kRunning at once. AttemptLaunchFailed ends the attempt as in step 6.
//  3. Every rank joins: RankJoined. After the last one the attempt is kRunning. A command's ranks need not join.
//  4. Ranks save: CheckpointSaved. A new checkpoint refills the budgets and resets the backoff.
//  5. Something ends the attempt: RankExited, RankSilent, RankHung, NodeLost, TimeLimitReached, AttemptStopping,
//     CancelRequested or RequeueRequested. The first of them decides the cause. drain() asks for StopAttempt: the
//     attempt is kDraining, the job kStopping.
//  6. The last rank exits, or the executor says AttemptGone. end_attempt() decides by the cause: the job is kSucceeded,
//     kCancelled or kFailed, or charge() counts the end against the cause's budget. With budget left the job is
//     kWaiting and asks for StartAttempt n + 1 after the backoff, which leads to step 2. Without, the job is kFailed.
//  7. A person requeues a failed job: RequeueRequested refills the budgets and leads to step 2.
//
// A crash at any point loses nothing. A stored action is performed after the restart, perhaps for the second time. An
// event that was not stored happens again: the executor and the ranks report once more.

/// Actions that a state change asks of the runtime. An action is performed at least once and is idempotent: performing
/// it twice, or late, does no harm. kName is stored, so it never changes.
struct StartAttempt {
  static constexpr std::string_view kName = "start_attempt";
  AttemptNumber attempt = 0;
  Time not_before{};  // backoff
  bool operator==(const StartAttempt&) const = default;
};
/// Ask every rank to leave, and kill the ranks that are left after the grace period.
struct StopAttempt {
  static constexpr std::string_view kName = "stop_attempt";
  AttemptNumber attempt = 0;
  /// True: the ranks finish their step, save and leave within the job's grace period (cancel, requeue, time limit).
  /// False: the ranks get a short grace period, since a gang that has lost a rank cannot finish its step.
  bool save = false;
  std::string reason;
  bool operator==(const StopAttempt&) const = default;
};
/// Hold a queued attempt in the scheduler, or release it.
struct HoldAttempt {
  static constexpr std::string_view kName = "hold_attempt";
  AttemptNumber attempt = 0;
  bool hold = true;
  bool operator==(const HoldAttempt&) const = default;
};
/// Give the scheduler the job's new time limit.
struct LimitAttempt {
  static constexpr std::string_view kName = "limit_attempt";
  AttemptNumber attempt = 0;
  Millis time_limit{0};
  bool operator==(const LimitAttempt&) const = default;
};
/// Delete the metrics and files of a removed job.
struct RemoveFiles {
  static constexpr std::string_view kName = "remove_files";
  bool operator==(const RemoveFiles&) const = default;
};
using Action = std::variant<StartAttempt, StopAttempt, HoldAttempt, LimitAttempt, RemoveFiles>;

/// Why a job is not tried again after an end that another attempt might help.
enum class GivenUp {
  kNo,
  kBudget,     // the budget of the cause is spent
  kSameError,  // the same error came too often: RequeuePolicy::max_same_error
};

/// The consequences of an event, in codes. The values are in the event and in the job.
struct Effect {
  enum class Kind {
    kTaken,          // the event is taken as it is
    kNothing,        // nothing changes: it was known, or the job's state does not allow it
    kUnderWay,       // it is so already; only details are new
    kAttemptOver,    // nothing changes: the attempt has ended
    kRankGone,       // nothing changes: the rank has exited
    kMustNotRun,     // an attempt was launched that must not run: it is stopped
    kDrains,         // the attempt must end, and its ranks are asked to leave
    kDrainsAlready,  // the attempt is ending already, for an earlier cause
    kEnds,           // the attempt has ended
  };
  Kind kind = Kind::kTaken;
  bool decides = false;         // the event is the cause of the attempt's end
  bool is_first_cause = false;  // it explains the end of the rank that ended first
  bool from_queue = false;      // kDrains: the attempt has no nodes yet
  bool all_joined = false;      // every rank of the attempt has joined now
  bool is_charged = false;      // kEnds: the end counts against the budget of its cause
  GivenUp given_up = GivenUp::kNo;
  bool was_long_start = false;                         // see may_be_a_long_start()
  bool is_untold = false;                              // a checkpoint that nobody had told of
  bool is_no_progress = false;                         // files that count for nothing: see FilesWorth
  bool has_new_total = false, has_new_config = false;  // of ProgramDescribed
  bool was_asked = false;                              // the answer to the limit asked for last
  bool operator==(const Effect&) const = default;
};

struct Applied {
  Job job;
  std::vector<Action> actions;
  Effect effect;
  /// The event and its consequences: "rank 1 killed by SIGKILL; attempt 2 starts in 1 s (failure 1 of 3)". For people;
  /// no program reads it.
  std::string text;
};

/// Folds one event into the job. The function is pure and total: every state takes every event. It reads no clock, so
/// replaying the log rebuilds the state. Late news about an ended attempt, and a request that the state does not allow,
/// change only the version. One exception: AttemptLaunched of an attempt that must not run (the job was cancelled, or
/// another attempt was expected) asks for StopAttempt, so that no process runs unwatched.
Applied apply(Job now, const Event& event);

/// Why the job's state refuses a person's request.
enum class Refusal {
  kNone,  // the request is allowed, or the event is no request
  kRemoved,
  kCancelled,  // or being cancelled
  kSucceeded,
  kNotStarted,
  kInQueue,
  kEnded,
  kEnding,  // the job is being cancelled
  kNotHeld,
  kNotEnded,
};
Refusal refusal_of(const Job& job, const EventBody& request);
/// The refusal as a sentence, with what to do instead; empty: kNone.
std::string refusal_text(const Job& job, const EventBody& request);
/// "job 7 was removed by ada"; empty: the job was not removed. Only the history of a removed job can be read.
std::string removed_text(const Job& job);

/// True if muster ended this rank, which has exited: muster had to stop the attempt, or another rank had ended first.
bool is_stopped_by_muster(const Attempt& attempt, RankNumber rank);

/// The effect of an allowed request, in whole sentences. Clients show it before they ask for confirmation.
std::string effect_of_cancel(const Job& job);
std::string effect_of_requeue(const Job& job);

}  // namespace core
