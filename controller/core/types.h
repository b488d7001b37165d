#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/enumerators.h"
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

/// What was known of a GPU of musterd's own machine, besides its name, when an attempt was given it. A musterd that is
/// started again may name the same GPU otherwise.
struct GpuIdentity {
  std::optional<std::uint32_t> number = {};  // of the whole GPU, in the order of PCI; nullopt: not known
  std::string gpu = {};                      // UUID of the whole GPU; empty: not known
  bool operator==(const GpuIdentity&) const = default;
};

/// What an attempt was given of the machine that musterd runs on. No other attempt has it meanwhile.
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

}  // namespace core
