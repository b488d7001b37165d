#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "spec/dependency.h"
#include "spec/exit_codes.h"
#include "spec/limits.h"

namespace core {

using JobId = std::int64_t;
using spec::kMostSweepJobs;
using AttemptNumber = std::uint32_t;  // from 1
using RankNumber = std::uint32_t;     // from 0
using Step = std::int64_t;

/// Wall-clock time in milliseconds since 1970, UTC. The core never reads a clock. Every time arrives inside an event.
using Time = std::chrono::sys_time<std::chrono::milliseconds>;
using Millis = std::chrono::milliseconds;

/// One attempt of one job. Executors, ranks and fences use it as their key.
struct AttemptKey {
  JobId job = 0;
  AttemptNumber number = 0;
  auto operator<=>(const AttemptKey&) const = default;
};

/// Facts that were known of a GPU of musterd's own machine, besides its name, when an attempt was given it. A musterd
/// that is started again may name the same GPU otherwise.
struct GpuIdentity {
  std::optional<std::uint32_t> number = {};  // of the whole GPU, in the order of PCI; nullopt: not known
  std::string gpu = {};                      // UUID of the whole GPU; empty: not known
  bool operator==(const GpuIdentity&) const = default;
};

/// GPUs and cores of musterd's own machine that an attempt was given. No other attempt has them meanwhile.
struct MachineShare {
  std::vector<std::string> gpus;        // by the names that CUDA_VISIBLE_DEVICES knows, those of rank 0 first
  std::uint32_t cores = 0;              // 0: not counted
  std::vector<GpuIdentity> known = {};  // of each of `gpus`; of one that is missing here only its name is known
  bool operator==(const MachineShare&) const = default;
};

/// Why an attempt ended. Each cause has its own budget in RequeuePolicy; see requeue_policy.h.
enum class Cause {
  kNone,            // not decided yet
  kCompleted,       // every rank exited with 0
  kFailed,          // a rank exited with another code or by a signal
  kRankSilent,      // a rank stopped sending heartbeats
  kRankHung,        // a rank kept sending heartbeats but made no progress
  kCancelled,       // a person cancelled the job
  kPreempted,       // the scheduler took the nodes, or a rank saved and exited with kExitRequeue
  kTimedOut,        // the time limit passed
  kNodeFailed,      // one of its nodes was lost or is unfit
  kOutOfMemory,     // a rank ran out of memory
  kControllerLost,  // the executor has no trace of the attempt, or could not start it
  kRequeued,        // a person asked for a new attempt
};
std::string_view to_string(Cause cause);                   // "rank_silent"
std::optional<Cause> cause_from_string(std::string_view);  // the reverse

using spec::all_of;

using spec::ExitStatus;
using spec::kExitFenced;
using spec::kExitNeverRequeue;
using spec::kExitOutOfMemory;
using spec::kExitRequeue;

/// The states of a job. A job is the fold of its events; apply.h tells the story from submit to requeue.
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
/// kQueued: the attempt waits in a scheduler's queue. An executor that starts attempts at once skips this state. An
/// attempt that ends in the queue (refused, cancelled) follows the rules of a running attempt.
/// A held job stays in kPending or kWaiting, and so does a job that waits for other jobs (Job::after).
/// kSucceeded and kCancelled are final. Only a manual requeue leaves kFailed; it refills the budgets.
enum class JobState { kPending, kQueued, kRunning, kStopping, kWaiting, kSucceeded, kFailed, kCancelled };
inline constexpr auto kAllJobStates = all_of<JobState>();
std::string_view to_string(JobState state);  // "pending" ...
std::optional<JobState> job_state_from_string(std::string_view text);
bool is_ended(JobState state);  // kSucceeded, kFailed, kCancelled

/// The states of one attempt.
///
///   kQueued --the scheduler gave it nodes, or a rank joined--> kStarting
///   kStarting --launched and (command, or every rank joined)--> kRunning
///   kQueued, kStarting, kRunning --cause known, ranks still there--> kDraining
///   any of them --no rank left--> kEnded
///
/// The first cause wins. The exit codes and signals of draining ranks do not change it. One thing does: if the first
/// rank to fail only says that another rank has gone, the error of a rank that tells another one is the first cause.
enum class AttemptState { kQueued, kStarting, kRunning, kDraining, kEnded };
std::string_view to_string(AttemptState state);
std::optional<AttemptState> attempt_state_from_string(std::string_view text);

enum class RankState { kStarting, kRunning, kSilent, kExited };
std::string_view to_string(RankState state);

/// Suspicions against an attempt, without evidence. The attempt goes on meanwhile.
enum class Suspicion {
  kHung,     // ranks are heard, and one has made no progress for longer than usual
  kUnheard,  // a rank is not heard, and nobody who is heard tells that it has failed
};
std::string_view to_string(Suspicion suspicion);  // "hung", "unheard"
std::optional<Suspicion> suspicion_from_string(std::string_view text);

/// Why a hang ends its attempt after just that time.
enum class LimitSource {
  kNotTold,        // by an earlier muster
  kUser,           // liveness.hung_after
  kLearned,        // from the times of steps
  kNotLearnedYet,  // too few times are known of the section
};
std::string_view to_string(LimitSource source);  // "", "user", "learned", "not_learned_yet"
std::optional<LimitSource> limit_source_from_string(std::string_view text);

struct Rank {
  RankState state = RankState::kStarting;
  std::string node;
  std::int64_t pid = 0;
  std::optional<ExitStatus> exit;
  std::string last_words;  // the reason that the rank gave when it left; empty: none
  bool reports = false;    // only set in commands: the rank's program has reported to the controller
  bool operator==(const Rank&) const = default;
};

/// A job in a scheduler's queue, or one element of an array.
struct SchedulerJob {
  std::uint64_t number = 0;              // 0: the scheduler has forgotten the job
  std::optional<std::uint32_t> element;  // in its array
  bool operator==(const SchedulerJob&) const = default;
};
std::string to_string(const SchedulerJob& job);  // "1234", "1234_5"

struct Attempt {
  AttemptNumber number = 0;
  AttemptState state = AttemptState::kStarting;
  Cause cause = Cause::kNone;
  std::string reason;                  // why the attempt ended, or what it does now; for people
  std::string reason_started;          // "submitted", "attempt 1: rank 1 killed by SIGKILL"; for people
  std::optional<Suspicion> suspicion;  // only while it runs
  std::optional<RankNumber> culprit;
  std::optional<ExitStatus> culprit_exit;
  std::string error;               // the program's error, from the rank that decided the cause; empty: none found
  Step error_step = 0;             // the newest step that this rank had reported; 0: none
  Step newest_step = -1;           // RankExited::attempt_step of that end
  std::string trace;               // what the program reported with that error; empty: none
  std::optional<Time> queued_at;   // when the scheduler took the attempt into its queue
  std::optional<Time> started_at;  // when its processes began
  std::optional<Time> running_at;
  std::optional<Time> ended_at;
  std::optional<Step> resumed_from_step;      // reported by the ranks; 0 is the beginning
  std::string handle;                         // the executor's name for the attempt: its folder, or "Slurm job 1234"
  std::optional<SchedulerJob> scheduler_job;  // of an attempt that an executor with a queue runs
  std::optional<MachineShare> share;          // its own until it has ended
  std::vector<Rank> ranks;
  bool operator==(const Attempt&) const = default;
};

/// How often each cause may bring a job back, and how long the job waits before its next attempt. A budget counts
/// consecutive ends without healthy progress. A new checkpoint, or running for healthy_after, is healthy progress: it
/// refills every budget and resets the backoff. worth_of_files() has the rule for programs that report nothing.
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

/// The newest rules by which errors are compared: see same_error() and may_be_a_long_start(). A job keeps the rules of
/// its submission, so replay gives the same job. 0: by an earlier muster, times and lists of process ids made a
/// difference, and no long start was compared.
inline constexpr std::uint32_t kErrorRules = 1;

using spec::Dependency;
using spec::depends_on_from_string;
using spec::DependsOn;
using spec::parse_dependency;
using spec::to_string;

/// The place of a job in the sweep that it was submitted with.
struct SweepElement {
  std::string sweep;           // id of the sweep; empty: the job is in no sweep
  std::uint32_t index = 0;     // from 0
  std::uint32_t parallel = 0;  // how many of the sweep's jobs may have an attempt at once; 0: no limit
  bool operator==(const SweepElement&) const = default;
};

/// A checkpoint of which the program has told the path.
struct ReportedCheckpoint {
  AttemptNumber attempt = 0;
  Step step = 0;
  std::string path;
  std::int64_t bytes = -1;  // negative: not told
  Time at{};                // when the controller learned of it
  bool operator==(const ReportedCheckpoint&) const = default;
};

/// Facts that a program has told of itself in its report files, besides its steps.
struct ProgramFacts {
  static constexpr std::size_t kCheckpointsKept = 5;
  Step total_steps = 0;                         // 0: not told
  std::string config;                           // a JSON object; empty: not told
  std::string status;                           // of rank 0 at its end, in the newest attempt; empty: none
  std::vector<ReportedCheckpoint> checkpoints;  // the newest, in the order of the reports
  std::uint64_t bad_lines = 0;                  // of all ranks that have ended, in the newest attempt
  std::string first_bad_line;                   // "rank 1, line 3: ..."
  std::string source_trouble;                   // "rank 0: report.checkpoints: ...", in the newest attempt
  /// Patterns of report.log that have matched no line of any rank that has ended, in the newest attempt; nullopt: no
  /// rank has ended yet.
  std::optional<std::set<std::string>> unmatched;
  bool operator==(const ProgramFacts&) const = default;
};

/// The moment from which the budgets count.
struct Refill {
  enum class By { kStart, kCheckpoint, kFiles, kHealthyRun, kRequeue };
  By by = By::kStart;
  std::int64_t number = 0;  // kCheckpoint: its step; kHealthyRun: the attempt
  bool operator==(const Refill&) const = default;
};

struct Job {
  JobId id = 0;
  std::string name;
  std::string user;
  bool is_command = false;    // the job runs any program, which need not send heartbeats; false: it runs a recipe
  bool has_reported = false;  // only set in commands: a rank of some attempt has reported to the controller
  std::uint32_t world_size = 1;
  Millis time_limit{0};  // the one in force; 0: none
  /// A limit that a person asked for while a scheduler enforces another one. It counts once the scheduler has taken it,
  /// or from the next attempt on.
  std::optional<Millis> time_limit_asked;
  /// Why the scheduler refused the limit asked for last. Empty: it took the limit, nobody asked, or the attempt is
  /// over.
  std::string time_limit_refusal;
  RequeuePolicy policy;
  JobState state = JobState::kPending;
  std::string reason;
  std::int64_t version = 0;  // number of events folded
  std::vector<Attempt> attempts;
  std::map<Cause, std::uint32_t> spent;  // budget used since the last healthy progress
  Refill refilled;                       // what `spent` counts from
  std::uint32_t unhealthy_ends = 0;      // consecutive, over all causes: the backoff's exponent
  Step last_checkpoint_step = 0;
  ProgramFacts program;
  bool saved_anew = false;      // the newest attempt has saved a new checkpoint
  std::string unseen_progress;  // why the checkpoint folder could not be read since the last refill; empty: it could
  bool brief_files = false;     // a short attempt left files since the last refill; see FilesWorth::kNothing
  /// The number of quick failures in a row with the same error at the same step; then that error and that step.
  std::uint32_t same_errors = 0;
  std::string last_error;
  Step last_error_step = 0;
  Millis last_error_after{0};     // that attempt's start
  std::uint32_t error_rules = 0;  // see kErrorRules
  bool tells_steps = false;       // see JobSubmitted
  bool cancel_requested = false;
  std::string cancelled_by;
  /// A person asked for a new attempt while the current one was stopping. The new attempt starts at once and costs no
  /// budget.
  bool requeue_requested = false;
  /// While the job is held, no attempt starts. A running attempt goes on.
  bool held = false;
  std::string held_by;
  std::vector<Dependency> after;
  SweepElement sweep;
  Time submitted_at{};
  std::optional<Time> next_attempt_at;  // while kWaiting
  std::string next_attempt_reason;      // while kWaiting: the reason_started of the next attempt
  std::optional<Time> ended_at;
  /// Set once and never cleared. Lists leave a removed job out, its files and metrics are deleted, and no other job
  /// gets its number.
  std::optional<Time> removed_at;
  std::string removed_by;
  bool operator==(const Job&) const = default;

  /// The newest attempt; null before the first.
  const Attempt* current() const { return attempts.empty() ? nullptr : &attempts.back(); }
  /// True if the program reports its steps. Of a program that reports nothing, muster sees only processes and files.
  bool reports() const { return !is_command || has_reported; }
  /// True if no person holds the job and no other job must end first.
  bool may_start() const { return !held && dependencies_met(); }
  bool dependencies_met() const {
    return std::ranges::all_of(after, [](const Dependency& dependency) { return dependency.met; });
  }
};

/// True while the job has no attempt that goes on: it is kPending or kWaiting.
bool is_idle(const Job& job);

/// True if attempt `number` is the next one of the job and has not started yet. A person may hold it.
bool is_upcoming(const Job& job, AttemptNumber number);

/// True if the ranks of an attempt that ends by this cause can save; see StopAttempt::save. Only a whole gang that is
/// asked to leave can finish its step.
bool leaves_with_save(Cause cause);

/// A person's order that no attempt starts: what runs goes on, submissions are taken and wait. An admin gives it before
/// an upgrade, or while nodes are maintained.
struct Drain {
  Time since{};
  std::string user, reason;  // the reason may be empty
  bool operator==(const Drain&) const = default;
};

}  // namespace core
