#pragma once

#include <string>
#include <variant>
#include <vector>

#include "controller/core/job.h"

namespace core {

// Events are facts, in the order in which the controller learned them. They are stored for ever: a field may be added
// (with a default), but never renamed, removed or given another meaning. An event about an attempt that has ended is
// late news and changes nothing. kName is stored and shown, so it never changes.

struct JobSubmitted {
  static constexpr std::string_view kName = "job_submitted";
  std::string name;
  std::string user;
  bool is_command = false;
  std::uint32_t world_size = 1;
  Millis time_limit{0};
  RequeuePolicy policy;
  bool held = false;
  std::vector<Dependency> after = {};
  SweepElement sweep = {};
  std::uint32_t error_rules = 0;  // see kErrorRules
  bool tells_steps = false;       // a command whose job file says where its steps are found
  bool operator==(const JobSubmitted&) const = default;
};
/// The executor has started the attempt, or found it after a crash of the controller.
struct AttemptLaunched {
  static constexpr std::string_view kName = "attempt_launched";
  AttemptNumber attempt = 0;
  std::string handle;
  std::string node;                // of a one-node executor; empty otherwise
  std::vector<std::int64_t> pids;  // by rank; empty if the executor does not know them
  bool queued = false;             // the attempt waits in a scheduler's queue; AttemptStarted follows
  Millis time_limit{-1};           // the limit given to the scheduler; 0: none; negative: not told
  std::optional<SchedulerJob> scheduler_job = {};
  std::optional<MachineShare> share = {};  // of an attempt on musterd's own machine that asked for GPUs or cores
  bool operator==(const AttemptLaunched&) const = default;
};
/// The scheduler gave a queued attempt its nodes.
struct AttemptStarted {
  static constexpr std::string_view kName = "attempt_started";
  AttemptNumber attempt = 0;
  std::vector<std::string> nodes;  // by rank; empty if not known
  /// True: the muster-agent of each rank told its node. False: `nodes` is the scheduler's list, which need not be in
  /// the order of the ranks.
  bool seen_there = false;
  bool operator==(const AttemptStarted&) const = default;
};
/// The scheduler is ending the attempt and has told the ranks. `save`: the ranks have time to save.
struct AttemptStopping {
  static constexpr std::string_view kName = "attempt_stopping";
  AttemptNumber attempt = 0;
  Cause cause = Cause::kPreempted;
  std::string reason;
  bool save = true;
  bool operator==(const AttemptStopping&) const = default;
};
/// The executor could not start the attempt, and left nothing behind. `retryable` is false when another try cannot help
/// (no such program).
struct AttemptLaunchFailed {
  static constexpr std::string_view kName = "attempt_launch_failed";
  AttemptNumber attempt = 0;
  std::string reason;
  bool retryable = true;
  bool operator==(const AttemptLaunchFailed&) const = default;
};
/// The first message of a rank. A command's rank sends one only if the program reports by itself.
struct RankJoined {
  static constexpr std::string_view kName = "rank_joined";
  AttemptNumber attempt = 0;
  RankNumber rank = 0;
  std::string node;
  std::int64_t pid = 0;
  bool operator==(const RankJoined&) const = default;
};
/// All ranks agree on the step from which training goes on; 0 is the beginning.
struct AttemptResumed {
  static constexpr std::string_view kName = "attempt_resumed";
  AttemptNumber attempt = 0;
  Step step = 0;
  bool operator==(const AttemptResumed&) const = default;
};
/// The event's time is when the controller learned of the save. After an outage that is much later than the save.
struct CheckpointSaved {
  static constexpr std::string_view kName = "checkpoint_saved";
  AttemptNumber attempt = 0;
  Step step = 0;
  Millis saved_at{0};       // since 1970, by the clock of the rank that reported the save; 0: not known
  std::string path = {};    // where a program has saved it; empty: not told
  std::int64_t bytes = -1;  // negative: not told
  bool operator==(const CheckpointSaved&) const = default;
};
/// Facts that rank 0 of a program told of its run. The event comes when something in it is new.
struct ProgramDescribed {
  static constexpr std::string_view kName = "program_described";
  AttemptNumber attempt = 0;
  Step total_steps = 0;  // 0: not told
  std::string config;    // a JSON object; empty: not told
  bool operator==(const ProgramDescribed&) const = default;
};
/// The checkpoint folder of a program that reports nothing, compared with the folder at the attempt's start. The event
/// comes before the end of the last rank. It comes only if something is new, or if the folder could not be read.
struct CheckpointFolderSeen {
  static constexpr std::string_view kName = "checkpoint_folder_seen";
  AttemptNumber attempt = 0;
  std::uint32_t fresh = 0;  // files and folders at its top that are new or have changed
  std::string newest;       // the name of one of them
  std::string trouble;      // why the folder could not be read; empty: it was read
  /// How many of `fresh` have a name that the folder did not hold at the start; negative: not told.
  std::int32_t new_names = -1;
  bool operator==(const CheckpointFolderSeen&) const = default;
};
/// A rank's process is gone. `out_of_memory`: the kernel killed it for memory.
struct RankExited {
  static constexpr std::string_view kName = "rank_exited";
  AttemptNumber attempt = 0;
  RankNumber rank = 0;
  ExitStatus exit;
  bool out_of_memory = false;
  std::string last_words;
  std::string error = {};           // from the program's error file or the end of its log; empty: none found
  Step step = 0;                    // the newest step that the rank reported; 0: none
  std::string trace = {};           // the trace that the program reported with its error; empty: none
  std::string status = {};          // what the program said last that it does; empty: nothing
  std::uint64_t bad_lines = 0;      // lines of its report file that could not be read, or only in part
  std::string first_bad_line = {};  // what was wrong with the first of them
  std::string source_trouble = {};  // what was wrong first with what [report] of the job file names
  /// The newest step that any rank of the attempt has told, without the step it went on from; 0: none. Negative: an
  /// earlier muster stored this event, and its rules hold for it.
  Step attempt_step = -1;
  bool operator==(const RankExited&) const = default;
};
struct RankSilent {
  static constexpr std::string_view kName = "rank_silent";
  AttemptNumber attempt = 0;
  RankNumber rank = 0;
  Millis silent_for{0};
  std::string seen;  // the state of the process as its node sees it: "stopped", "alive", "unknown"
  bool operator==(const RankSilent&) const = default;
};
/// Without `why`: all ranks of the node and their muster-agents are silent. With `why`: the node is not fit to run
/// ranks.
struct NodeLost {
  static constexpr std::string_view kName = "node_lost";
  AttemptNumber attempt = 0;
  std::string node;
  Millis silent_for{0};
  std::string why = {};  // "its health check failed"; empty: the node is silent
  /// The job's own check found the node unfit. Other jobs may still use the node.
  bool only_this_job = false;
  bool operator==(const NodeLost&) const = default;
};
/// The rank sends heartbeats, but its step has not moved.
struct RankHung {
  static constexpr std::string_view kName = "rank_hung";
  AttemptNumber attempt = 0;
  RankNumber rank = 0;
  std::string section;
  Millis no_progress_for{0};
  Millis limit{0};                 // 0: not told
  std::uint64_t learned_from = 0;  // steps that taught the limit; 0: the job file or the standard set it
  bool only_one_reports = false;   // of several ranks, no other tells of progress
  Millis usual{0};                 // what was learned; 0: nothing, or not told
  LimitSource source = LimitSource::kNotTold;
  std::string learned_in = {};  // another section that ranks are in, whose usual time holds; empty: the rank's own
  bool operator==(const RankHung&) const = default;
};
/// The attempt may have failed, and there is no evidence of it. It goes on.
struct AttemptSuspected {
  static constexpr std::string_view kName = "attempt_suspected";
  AttemptNumber attempt = 0;
  Suspicion of = Suspicion::kHung;
  RankNumber first_rank = 0;  // the one without progress for the longest time, or the first that is not heard
  std::uint32_t ranks = 1;    // kUnheard: how many are not heard
  std::string node = {};      // kUnheard: nothing is heard from this node; empty: from several, or from a part of one
  std::string section = {};   // that the rank was in
  Millis lasts{0};            // how long it has made no progress, or has not been heard
  Millis limit{0};            // kHung: after which progress is missed
  Millis ends_after{0};       // the attempt ends when that time has become so long
  std::uint64_t learned_from = 0;  // as in RankHung
  bool only_one_reports = false;   // as in RankHung
  /// kUnheard: the attempt ends sooner when all ranks that are heard have stood still for so long; 0: none is heard.
  Millis stands_after{0};
  LimitSource source = LimitSource::kNotTold;  // of ends_after
  std::string learned_in = {};                 // as in RankHung
  bool operator==(const AttemptSuspected&) const = default;
};
/// A suspected attempt makes progress again, or is heard again.
struct SuspicionOver {
  static constexpr std::string_view kName = "suspicion_over";
  AttemptNumber attempt = 0;
  Suspicion of = Suspicion::kHung;
  Millis after{0};  // since the last progress, or the last word, before it; 0: an earlier musterd knew that
  bool operator==(const SuspicionOver&) const = default;
};
struct TimeLimitReached {
  static constexpr std::string_view kName = "time_limit_reached";
  AttemptNumber attempt = 0;
  bool operator==(const TimeLimitReached&) const = default;
};
/// The executor says that the whole attempt is over, with all its ranks. Slurm: the job has a final state. Local: no
/// trace of the attempt is left.
struct AttemptGone {
  static constexpr std::string_view kName = "attempt_gone";
  AttemptNumber attempt = 0;
  Cause cause = Cause::kControllerLost;
  std::string reason;
  bool operator==(const AttemptGone&) const = default;
};
struct CancelRequested {
  static constexpr std::string_view kName = "cancel_requested";
  std::string user;
  bool operator==(const CancelRequested&) const = default;
};
struct RequeueRequested {
  static constexpr std::string_view kName = "requeue_requested";
  std::string user;
  bool operator==(const RequeueRequested&) const = default;
};
struct HoldRequested {
  static constexpr std::string_view kName = "hold_requested";
  std::string user;
  bool operator==(const HoldRequested&) const = default;
};
struct ReleaseRequested {
  static constexpr std::string_view kName = "release_requested";
  std::string user;
  bool operator==(const ReleaseRequested&) const = default;
};
struct TimeLimitChanged {
  static constexpr std::string_view kName = "time_limit_changed";
  std::string user;
  Millis time_limit{0};  // 0: none
  bool operator==(const TimeLimitChanged&) const = default;
};
/// The scheduler's answer to LimitAttempt.
struct TimeLimitAnswered {
  static constexpr std::string_view kName = "time_limit_answered";
  AttemptNumber attempt = 0;
  Millis time_limit{0};
  std::string refusal;  // empty: the limit is in force now
  bool operator==(const TimeLimitAnswered&) const = default;
};
/// A job that this one waits for has ended.
struct DependencyEnded {
  static constexpr std::string_view kName = "dependency_ended";
  JobId job = 0;
  JobState state = JobState::kSucceeded;
  bool operator==(const DependencyEnded&) const = default;
};
/// A person removed the ended job. Its metrics and files are deleted; its events stay.
struct JobRemoved {
  static constexpr std::string_view kName = "job_removed";
  std::string user;
  bool operator==(const JobRemoved&) const = default;
};

using EventBody = std::variant<JobSubmitted, AttemptLaunched, AttemptLaunchFailed, RankJoined, AttemptResumed,
                               CheckpointSaved, RankExited, RankSilent, RankHung, TimeLimitReached, AttemptGone,
                               CancelRequested, RequeueRequested, AttemptStarted, AttemptStopping, NodeLost,
                               HoldRequested, ReleaseRequested, TimeLimitChanged, DependencyEnded, TimeLimitAnswered,
                               CheckpointFolderSeen, JobRemoved, ProgramDescribed, AttemptSuspected, SuspicionOver>;

/// One event of one job.
struct Event {
  Time at{};
  EventBody body;
  bool operator==(const Event&) const = default;
};

/// "rank_exited"; also the stored type name.
std::string_view type_name(const EventBody& body);
/// The number of the attempt that the event is about; 0 for events about the whole job.
AttemptNumber attempt_of(const EventBody& body);

}  // namespace core
