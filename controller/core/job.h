#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"

namespace core {

/// What happened to a job is a list of events; this is their fold (see apply.h).
///
///            submit
///              |
///              v        attempt 1 starts            all ranks done, cause decides
///          kPending ----------------> kRunning ------------------------------------> kSucceeded
///              |    \                 ^ ^   |  \                                      kFailed
///      cancel  |     > kQueued ------'  |   |   \  cancel / manual requeue / drain    kCancelled
///              v       ^  nodes given   |   v    v
///          kCancelled  '---------- kWaiting <- kStopping   (kStopping ends in any of the ended states or kWaiting)
///                                   backoff over
///
/// kQueued: the attempt waits in a scheduler's queue; executors that start at once leave it out. Its end there
/// (refused, cancelled) is decided as that of a running one. A held job, and one that waits for others (Job::after),
/// stays in kPending or kWaiting. kSucceeded and kCancelled are final. kFailed is left by a manual requeue alone, which
/// refills the budgets.
enum class JobState { kPending, kQueued, kRunning, kStopping, kWaiting, kSucceeded, kFailed, kCancelled };
inline constexpr std::array kAllJobStates{JobState::kPending,  JobState::kQueued,   JobState::kRunning,
                                          JobState::kStopping, JobState::kWaiting,  JobState::kSucceeded,
                                          JobState::kFailed,   JobState::kCancelled};
std::string_view to_string(JobState state);  // "pending" ...
std::optional<JobState> job_state_from_string(std::string_view text);
bool is_ended(JobState state);  // kSucceeded, kFailed, kCancelled

/// One attempt's life.
///
///   kQueued --the scheduler gave it nodes, or a rank spoke--> kStarting
///   kStarting --launched and (command, or every rank joined)--> kRunning
///   kQueued, kStarting, kRunning --cause known, ranks still there--> kDraining
///   any of them --no rank left--> kEnded
///
/// The first cause wins: what ranks do while draining (exit codes, signals) does not change it.
enum class AttemptState { kQueued, kStarting, kRunning, kDraining, kEnded };
std::string_view to_string(AttemptState state);
std::optional<AttemptState> attempt_state_from_string(std::string_view text);

enum class RankState { kStarting, kRunning, kSilent, kExited };
std::string_view to_string(RankState state);

struct Rank {
  RankState state = RankState::kStarting;
  std::string node;
  std::int64_t pid = 0;
  std::optional<ExitStatus> exit;
  std::string last_words;  // the reason a rank gave when leaving; empty if none
  bool reports = false;    // of any program: it has spoken to the controller itself
  bool operator==(const Rank&) const = default;
};

struct Attempt {
  AttemptNumber number = 0;
  AttemptState state = AttemptState::kStarting;
  Cause cause = Cause::kNone;
  std::string reason;          // why it ended, or what it is doing, in plain words
  std::string reason_started;  // "submitted", "rank 1 killed by SIGKILL; attempt 2 of ..." in plain words
  std::optional<RankNumber> culprit;
  std::optional<ExitStatus> culprit_exit;
  std::string error;               // the program's own words of the rank that decided the cause; empty: it left none
  Step error_step = 0;             // the newest step that this rank had told of; 0: none
  std::optional<Time> queued_at;   // handed to a scheduler
  std::optional<Time> started_at;  // its processes began
  std::optional<Time> running_at;
  std::optional<Time> ended_at;
  std::optional<Step> resumed_from_step;  // once the ranks have told; 0 is the beginning
  std::string handle;                     // the executor's own name of it (local: its folder; Slurm: the job id)
  std::vector<Rank> ranks;
  bool operator==(const Attempt&) const = default;
};

/// How often each cause may bring a job back, and how long to wait. Counts are of consecutive ends without healthy
/// progress: a new checkpoint, or healthy_after of running, refills every budget and resets the backoff. What new files
/// of a program that reports nothing count for: worth_of_files().
struct RequeuePolicy {
  std::uint32_t max_failed = 3;
  std::uint32_t max_rank_silent = 5;
  std::uint32_t max_rank_hung = 2;
  std::uint32_t max_preempted = 1000;
  std::uint32_t max_timed_out = 3;
  std::uint32_t max_node_failed = 10;
  std::uint32_t max_out_of_memory = 1;
  std::uint32_t max_controller_lost = 5;
  std::uint32_t max_same_error = 1;  // see is_quick_failure
  Millis backoff_initial{1000};
  Millis backoff_max{300000};
  Millis healthy_after{600000};  // 0: only a new checkpoint counts as healthy
  bool operator==(const RequeuePolicy&) const = default;
};

/// Another job whose end this one waits for.
enum class DependsOn { kSucceeded, kFailed, kEnded };  // kFailed: or cancelled
std::string_view to_string(DependsOn condition);       // "succeeded"
std::optional<DependsOn> depends_on_from_string(std::string_view text);
struct Dependency {
  JobId job = 0;
  DependsOn on = DependsOn::kSucceeded;
  bool met = false;
  bool operator==(const Dependency&) const = default;
};

/// What a job submitted as one of many knows of the others.
struct SweepElement {
  std::string sweep;           // id of the sweep; empty: the job stands alone
  std::uint32_t index = 0;     // from 0
  std::uint32_t parallel = 0;  // at most so many of the sweep's jobs have an attempt at once; 0: no limit
  bool operator==(const SweepElement&) const = default;
};

struct Job {
  JobId id = 0;
  std::string name;
  std::string user;
  bool is_command = false;    // any program, rather than a recipe: no heartbeats
  bool has_reported = false;  // of a command: some rank of some attempt has spoken to the controller itself
  std::uint32_t world_size = 1;
  Millis time_limit{0};  // the one in force; 0: none
  /// Asked for while a scheduler keeps the attempt to another one: it counts once the scheduler has taken it, or from
  /// the next attempt on.
  std::optional<Millis> time_limit_asked;
  /// Why the scheduler did not take the one asked for last, while that attempt lasts; empty: it did, or nobody asked.
  std::string time_limit_refusal;
  RequeuePolicy policy;
  JobState state = JobState::kPending;
  std::string reason;
  std::int64_t version = 0;  // number of events folded
  std::vector<Attempt> attempts;
  std::map<Cause, std::uint32_t> spent;  // budget used since the last healthy progress
  std::uint32_t unhealthy_ends = 0;      // consecutive, over all causes: the backoff's exponent
  Step last_checkpoint_step = 0;
  bool saved_anew = false;      // the newest attempt has brought a new checkpoint
  std::string unseen_progress;  // why it is not known whether the ends that count were without progress; empty: it is
  bool brief_files = false;     // files of short attempts were seen since, which are no progress by themselves
  /// Quick failures in a row with the same error at the same step, and both of these.
  std::uint32_t same_errors = 0;
  std::string last_error;
  Step last_error_step = 0;
  bool cancel_requested = false;
  std::string cancelled_by;
  /// A person asked for a new attempt while this one was stopping already: it follows at once, whatever the budgets.
  bool requeue_requested = false;
  /// No attempt starts while held; one that runs goes on.
  bool held = false;
  std::string held_by;
  std::vector<Dependency> after;
  SweepElement sweep;
  Time submitted_at{};
  std::optional<Time> next_attempt_at;  // while kWaiting
  std::string next_attempt_reason;      // while kWaiting: what reason_started will say
  std::optional<Time> ended_at;
  /// Set once and for ever: lists leave the job out, its files and metrics are deleted, and its number is not given
  /// again.
  std::optional<Time> removed_at;
  std::string removed_by;
  bool operator==(const Job&) const = default;

  /// The newest attempt; null before the first.
  const Attempt* current() const { return attempts.empty() ? nullptr : &attempts.back(); }
  /// Any program that has told of its steps itself; without a word of its own only its processes and files are seen.
  bool reports() const { return !is_command || has_reported; }
  /// Neither held nor waiting for another job.
  bool may_start() const { return !held && dependencies_met(); }
  bool dependencies_met() const {
    return std::ranges::all_of(after, [](const Dependency& dependency) { return dependency.met; });
  }
};

/// True when attempt `number` is the one the job waits for: nothing has started it yet, though a person may hold it.
bool is_upcoming(const Job& job, AttemptNumber number);

/// As StopAttempt::save: only a gang that leaves together, asked from outside, can finish its step.
bool leaves_with_save(Cause cause);

}  // namespace core
