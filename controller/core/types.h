#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace core {

using JobId = std::int64_t;
using AttemptNumber = std::uint32_t;  // from 1
using RankNumber = std::uint32_t;     // from 0
using Step = std::int64_t;

/// Wall-clock time, milliseconds since 1970 in UTC. The core never reads a clock: every time arrives inside an event.
using Time = std::chrono::sys_time<std::chrono::milliseconds>;
using Millis = std::chrono::milliseconds;

/// One attempt of one job: what executors, ranks and fences are keyed by.
struct AttemptKey {
  JobId job = 0;
  AttemptNumber number = 0;
  auto operator<=>(const AttemptKey&) const = default;
};

/// Why an attempt ended. Each has a budget of its own in RequeuePolicy; see requeue_policy.h.
enum class Cause {
  kNone,            // not decided yet
  kCompleted,       // every rank exited with 0
  kFailed,          // a rank exited with another code or by a signal
  kRankSilent,      // a rank stopped sending heartbeats
  kRankHung,        // a rank kept sending heartbeats but made no progress
  kCancelled,       // a person cancelled the job
  kPreempted,       // asked to leave from outside: saved and left with the requeue code
  kTimedOut,        // the time limit passed
  kNodeFailed,      // its node was lost
  kOutOfMemory,     // a rank ran out of memory
  kControllerLost,  // the executor has no trace of it, or it could not be started
  kRequeued,        // a person asked for a new attempt
};
std::string_view to_string(Cause cause);                   // "rank_silent"
std::optional<Cause> cause_from_string(std::string_view);  // the reverse

/// How a process ended: by exit code, or by signal when `signal` is not 0.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  bool operator==(const ExitStatus&) const = default;
};

/// Exit codes with a meaning between ranks and controller.
inline constexpr int kExitRequeue = 99;       // saved; start me again
inline constexpr int kExitNeverRequeue = 93;  // trying again cannot help
inline constexpr int kExitOutOfMemory = 97;
inline constexpr int kExitFenced = 94;  // the attempt was over already

}  // namespace core
