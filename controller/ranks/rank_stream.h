#pragma once

#include <functional>

#include "base/outcome.h"
#include "muster/v1/rank_service.pb.h"

namespace ranks {

/// The heartbeats of one rank, one after the other, on one stream. Its token was checked when it was opened.
///
/// beat() is called by the threads that read from all ranks, so it touches memory alone. What must be written waits for
/// work(). Thread-safe.
class RankStream {
 public:
  virtual ~RankStream() = default;
  /// Notes a request. True: work() is due, in a thread that may wait. A refusal ends the stream.
  virtual base::Outcome<bool> beat(const muster::v1::HeartbeatRequest& request) = 0;
  /// Writes what the newest requests have brought. Never throws.
  virtual void work() = 0;
  /// Nothing is told any more when this returns.
  virtual void close() = 0;
};

/// Sends an answer to the rank, and returns at once. A later answer may replace one that is not sent yet.
using TellRank = std::function<void(const muster::v1::BeatResponse&)>;

}  // namespace ranks
