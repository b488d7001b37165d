#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/apply.h"

namespace runtime {

/// Everything an executor needs to start an attempt; the same on local processes and on Slurm.
struct LaunchRequest {
  core::AttemptKey key;
  std::string job_name;
  std::uint32_t nodes = 1;
  std::uint32_t ranks_per_node = 1;
  std::uint32_t cpus_per_rank = 0;  // 0: not said
  std::uint32_t gpus_per_rank = 0;
  std::vector<std::string> argv;           // the program of one rank
  std::map<std::string, std::string> env;  // the user's and muster's own; never overwritten by the rank variables
  std::string working_folder;              // absolute
  std::string log_folder;                  // absolute; one file a rank: rank-<n>.log
  core::Millis time_limit{0};
};

/// How a stop is carried out: SIGTERM to every rank's process group, SIGKILL after the grace.
struct StopRequest {
  core::Millis grace{0};
};

/// Takes what happens to attempts. Called from an executor's own thread; returns quickly.
using FactSink = std::function<void(core::JobId, core::EventBody)>;

/// What a node says of a rank's process, asked when its heartbeats stop.
enum class Vouch { kAlive, kStopped, kGone, kUnknown };

/// Starts, stops and follows attempts. Contract (one suite for every executor):
/// - launch() is idempotent by key: if the attempt was started before (by this process or an earlier one that crashed),
///   it is found, not started again.
/// - after a restart, adopt() finds a launched attempt again: its later facts arrive, those missed meanwhile too. If
///   nothing is left of it, AttemptGone arrives.
/// - RankExited arrives once for each rank that ended, within milliseconds of its end.
/// - stop() returns at once and may be repeated; the ends arrive as facts.
/// - Trouble in asking (a scheduler that does not answer) is never reported as the end of anything.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::string name() const = 0;  // "local"
  /// Before any other call. Facts may arrive from then on.
  virtual void start(FactSink sink) = 0;
  /// Returns AttemptLaunched or AttemptLaunchFailed.
  virtual core::EventBody launch(const LaunchRequest& request) = 0;
  virtual void adopt(const core::AttemptKey& key, const core::Attempt& attempt) = 0;
  virtual void stop(const core::AttemptKey& key, const StopRequest& how) = 0;
  virtual Vouch vouch(const core::AttemptKey& key, core::RankNumber rank) = 0;
  /// Stops following; attempts go on without the controller.
  virtual void shutdown() = 0;
};

}  // namespace runtime
