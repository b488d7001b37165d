#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/job.h"

namespace core {

// Facts, in the order they were learned. Stored for ever, so a field may be added (with a default) but never renamed,
// removed or given another meaning. An event about an attempt that has ended already is late news: it changes nothing.

struct JobSubmitted {
  std::string name;
  std::string user;
  bool is_command = false;
  std::uint32_t world_size = 1;
  Millis time_limit{0};
  RequeuePolicy policy;
  bool held = false;
  std::vector<Dependency> after = {};
  SweepElement sweep = {};
  bool operator==(const JobSubmitted&) const = default;
};
/// The executor has started (or, after a crash, found) the attempt.
struct AttemptLaunched {
  AttemptNumber attempt = 0;
  std::string handle;
  std::string node;                // of a one-node executor; empty otherwise
  std::vector<std::int64_t> pids;  // by rank; empty if the executor does not know them
  bool queued = false;             // it waits for a scheduler; AttemptStarted follows
  Millis time_limit{-1};           // that the scheduler was told, 0: none; less than 0: not said
  bool operator==(const AttemptLaunched&) const = default;
};
/// The scheduler gave a queued attempt its nodes.
struct AttemptStarted {
  AttemptNumber attempt = 0;
  std::vector<std::string> nodes;  // by rank; empty if not known
  /// By what stands beside the ranks: true, where the scheduler's own list only says which nodes there are.
  bool seen_there = false;
  bool operator==(const AttemptStarted&) const = default;
};
/// The attempt is ending by the scheduler's doing: why, and whether its ranks can still save (they have been told).
struct AttemptStopping {
  AttemptNumber attempt = 0;
  Cause cause = Cause::kPreempted;
  std::string reason;
  bool save = true;
  bool operator==(const AttemptStopping&) const = default;
};
/// Nothing was started and nothing is left behind. `retryable` is false when trying again cannot help (no such
/// program).
struct AttemptLaunchFailed {
  AttemptNumber attempt = 0;
  std::string reason;
  bool retryable = true;
  bool operator==(const AttemptLaunchFailed&) const = default;
};
/// First word of a rank; of any program the first that it reports.
struct RankJoined {
  AttemptNumber attempt = 0;
  RankNumber rank = 0;
  std::string node;
  std::int64_t pid = 0;
  bool operator==(const RankJoined&) const = default;
};
/// Every rank agrees where training began; 0 is the beginning.
struct AttemptResumed {
  AttemptNumber attempt = 0;
  Step step = 0;
  bool operator==(const AttemptResumed&) const = default;
};
/// The event is of the moment that the controller learnt of it, which after an outage is much later than the save.
struct CheckpointSaved {
  AttemptNumber attempt = 0;
  Step step = 0;
  Millis saved_at{0};  // since 1970, by the clock of the rank that told of it; 0: not known
  bool operator==(const CheckpointSaved&) const = default;
};
/// What the checkpoint folder of a program that reports nothing holds at the end of an attempt, compared with its
/// start. Told before the end of its last rank, and only if something is new, or nobody could look.
struct CheckpointFolderSeen {
  AttemptNumber attempt = 0;
  std::uint32_t fresh = 0;  // files and folders at its top that are new or have changed
  std::string newest;       // one of them by name
  std::string trouble;      // not empty: why it is not known what is new
  /// How many of the new ones have a name that was not there at the start; less than 0: not told.
  std::int32_t new_names = -1;
  bool operator==(const CheckpointFolderSeen&) const = default;
};
/// A rank's process is gone. `out_of_memory`: the kernel killed it for memory.
struct RankExited {
  AttemptNumber attempt = 0;
  RankNumber rank = 0;
  ExitStatus exit;
  bool out_of_memory = false;
  std::string last_words;
  std::string error = {};  // the program's own, of its error file or the end of its log; empty: it left none
  Step step = 0;           // the newest that it has told of; 0: none
  bool operator==(const RankExited&) const = default;
};
struct RankSilent {
  AttemptNumber attempt = 0;
  RankNumber rank = 0;
  Millis silent_for{0};
  std::string seen;  // what its node says of the process: "stopped", "alive", "unknown"
  bool operator==(const RankSilent&) const = default;
};
/// Nothing on a node is heard any more: neither its ranks nor what stands beside them. Or, with `why`, it is not fit to
/// run any.
struct NodeLost {
  AttemptNumber attempt = 0;
  std::string node;
  Millis silent_for{0};
  std::string why = {};  // "its health check failed"; empty: it is silent
  /// A check of the job's own found it: other jobs are not kept off the node.
  bool only_this_job = false;
  bool operator==(const NodeLost&) const = default;
};
/// It sends heartbeats but its step has not moved.
struct RankHung {
  AttemptNumber attempt = 0;
  RankNumber rank = 0;
  std::string section;
  Millis no_progress_for{0};
  bool operator==(const RankHung&) const = default;
};
struct TimeLimitReached {
  AttemptNumber attempt = 0;
  bool operator==(const TimeLimitReached&) const = default;
};
/// The executor says the attempt as a whole is over, ranks and all (Slurm: its final state; local: no trace of it).
struct AttemptGone {
  AttemptNumber attempt = 0;
  Cause cause = Cause::kControllerLost;
  std::string reason;
  bool operator==(const AttemptGone&) const = default;
};
struct CancelRequested {
  std::string user;
  bool operator==(const CancelRequested&) const = default;
};
struct RequeueRequested {
  std::string user;
  bool operator==(const RequeueRequested&) const = default;
};

struct HoldRequested {
  std::string user;
  bool operator==(const HoldRequested&) const = default;
};
struct ReleaseRequested {
  std::string user;
  bool operator==(const ReleaseRequested&) const = default;
};
struct TimeLimitChanged {
  std::string user;
  Millis time_limit{0};  // 0: none
  bool operator==(const TimeLimitChanged&) const = default;
};
/// What a scheduler says to the time limit that LimitAttempt brought it.
struct TimeLimitAnswered {
  AttemptNumber attempt = 0;
  Millis time_limit{0};
  std::string refusal;  // empty: it is in force now
  bool operator==(const TimeLimitAnswered&) const = default;
};
/// A job that this one waits for has ended.
struct DependencyEnded {
  JobId job = 0;
  JobState state = JobState::kSucceeded;
  bool operator==(const DependencyEnded&) const = default;
};

/// A person has no use for the ended job any more: its records and files go, its history stays.
struct JobRemoved {
  std::string user;
  bool operator==(const JobRemoved&) const = default;
};

using EventBody =
    std::variant<JobSubmitted, AttemptLaunched, AttemptLaunchFailed, RankJoined, AttemptResumed, CheckpointSaved,
                 RankExited, RankSilent, RankHung, TimeLimitReached, AttemptGone, CancelRequested, RequeueRequested,
                 AttemptStarted, AttemptStopping, NodeLost, HoldRequested, ReleaseRequested, TimeLimitChanged,
                 DependencyEnded, TimeLimitAnswered, CheckpointFolderSeen, JobRemoved>;

/// One event of one job.
struct Event {
  Time at{};
  EventBody body;
  bool operator==(const Event&) const = default;
};

/// "rank_exited"; also the stored type name.
std::string_view type_name(const EventBody& body);
/// The attempt an event speaks of; 0 for those about the job as a whole.
AttemptNumber attempt_of(const EventBody& body);

}  // namespace core
