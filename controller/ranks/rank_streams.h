#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/changes.h"
#include "base/outcome.h"
#include "ranks/attempt_streams.h"
#include "ranks/live_ranks.h"
#include "ranks/metrics_writer.h"
#include "ranks/pace.h"
#include "ranks/rank_stream.h"

namespace ranks {

/// The streams of all ranks.
///
/// A heartbeat comes in on the thread that read it. It is noted in LiveRanks, and its rows are taken into the memory of
/// MetricsWriter. A checkpoint, the start of a rank and its end are written by work(), in another thread. An answer
/// goes out when there is something to tell: the attempt's directive has changed, the interval has changed, rows that
/// the rank waits for are durable, or AttemptStreams::kAnswerEvery has passed. Nothing here survives a restart: ranks
/// open their streams anew and send what is not acknowledged. Thread-safe.
class RankStreams {
 public:
  /// What work() has written of a request.
  struct Written {
    bool joined = false;            // the rank's start is in the history
    bool resumed = false;           // where the attempt has gone on from is in the history
    std::uint32_t checkpoints = 0;  // durable, counted from the first
  };
  struct Parts {
    base::Clock& clock;
    LiveRanks& live_ranks;
    MetricsWriter& metrics;
    base::Changes& changes;
    Pace& pace;
    std::function<Written(const muster::v1::HeartbeatRequest&)> write;  // may wait, and never throws
  };
  /// Whose a stream is.
  struct Rank {
    core::AttemptKey attempt;
    core::RankNumber rank = 0;
    core::Millis interval{0};  // of the job
    bool is_known = true;      // false: its rows are acknowledged and not kept
  };

  explicit RankStreams(Parts parts) : parts_(std::move(parts)) {}

  /// `standing` tells where the attempt stands now, and must not throw.
  std::shared_ptr<RankStream> open(const Rank& rank, TellRank tell, const std::function<AttemptStanding()>& standing);
  /// The job's history has gone on: tells ranks whose directive has changed.
  void follow(const core::Job& job) { attempts_.follow(job); }
  /// A commit of rows has come back.
  void settle();
  std::size_t open_now() const { return attempts_.open_now(); }
  /// Heartbeats that have come on streams.
  std::uint64_t beats() const { return beats_; }

 private:
  class Stream;
  void wait_for_commit(const std::shared_ptr<Stream>& stream);

  Parts parts_;
  std::atomic<std::uint64_t> beats_ = 0;
  AttemptStreams attempts_;
  std::mutex waiting_mutex_;
  std::vector<std::weak_ptr<Stream>> waiting_;  // each has rows on their way
};

}  // namespace ranks
