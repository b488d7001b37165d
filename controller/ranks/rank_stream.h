#pragma once

#include <functional>

#include "base/outcome.h"
#include "muster/v1/rank_service.pb.h"

namespace ranks {

/// The requests of one rank, or of the task beside it, one after the other, on one stream. Its token was checked when
/// it was opened.
///
/// beat() is called by the threads that read from all ranks, so it touches memory alone. What must be written waits for
/// work(). Thread-safe.
template <typename Request>
class StreamOf {
 public:
  virtual ~StreamOf() = default;
  /// Notes a request. True: work() is due, in a thread that may wait. A refusal ends the stream.
  virtual base::Outcome<bool> beat(const Request& request) = 0;
  /// Writes what the newest requests have brought. Never throws.
  virtual void work() {}
  /// Nothing is told any more when this returns.
  virtual void close() = 0;
};
using RankStream = StreamOf<muster::v1::HeartbeatRequest>;
using TaskStream = StreamOf<muster::v1::TaskRequest>;

/// Sends an answer to the rank or the task, and returns at once. A later answer may replace one that is not sent yet.
template <typename Response>
using Tell = std::function<void(const Response&)>;
using TellRank = Tell<muster::v1::BeatResponse>;
using TellTask = Tell<muster::v1::TaskResponse>;

}  // namespace ranks
