#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/common/changes.h"
#include "controller/common/clock.h"
#include "controller/common/outcome.h"
#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "controller/ranks/live_ranks.h"
#include "controller/ranks/rank_metrics.h"
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
  virtual common::Outcome<bool> beat(const Request& request) = 0;
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

/// Where an attempt stands when one of its ranks speaks.
struct AttemptStanding {
  bool current = false;   // recorded and not ended
  bool upcoming = false;  // launched, but that is not recorded yet
  muster::v1::Directive directive = muster::v1::DIRECTIVE_STOP;
  core::Cause cause = core::Cause::kNone;  // why it ends, of a current one
  bool operator==(const AttemptStanding&) const = default;
};

AttemptStanding standing_of(const core::Job& job, core::AttemptNumber number);

/// The open streams of one kind by attempt, and where each attempt stands. Thread-safe.
class AttemptStreams {
 public:
  /// Without news a rank or a task is answered this often.
  static constexpr core::Millis kAnswerEvery{5000};

  class Stream {
   public:
    virtual ~Stream() = default;
    /// The attempt stands elsewhere now.
    virtual void news() = 0;
  };
  /// The state that the streams of one attempt share.
  class Attempt {
   public:
    AttemptStanding now() const {
      std::lock_guard lock(mutex_);
      return standing_;
    }

   private:
    friend class AttemptStreams;
    /// False: the attempt stood there already.
    bool stand(const AttemptStanding& standing);
    mutable std::mutex mutex_;
    AttemptStanding standing_;
    std::map<Stream*, std::weak_ptr<Stream>> streams_;  // guarded by AttemptStreams
  };

  /// `make` makes the stream, and `standing` tells where the attempt stands now. Neither may throw.
  template <typename Make>
  auto open(const core::AttemptKey& key, const std::function<AttemptStanding()>& standing, const Make& make) {
    std::lock_guard lock(mutex_);
    auto& attempt = attempts_[key];
    if (attempt == nullptr) attempt = std::make_shared<Attempt>();
    auto stream = make(attempt);
    attempt->streams_.emplace(stream.get(), stream);
    ++open_;
    // Asked with the lock held: what is published later waits for it in follow().
    attempt->stand(standing());
    return stream;
  }
  void forget(const core::AttemptKey& key, Stream* stream);
  /// The job's history has gone on: gives news to the streams of attempts that stand elsewhere now.
  void follow(const core::Job& job);
  /// There is something else to tell the streams of this attempt.
  void news_for(const core::AttemptKey& key);
  std::size_t open_now() const { return open_; }
  /// A rank of this attempt has a stream.
  bool is_open(const core::AttemptKey& key) {
    std::lock_guard lock(mutex_);
    return attempts_.contains(key);
  }

 private:
  std::mutex mutex_;
  std::atomic<std::size_t> open_ = 0;
  std::map<core::AttemptKey, std::shared_ptr<Attempt>> attempts_;
};

/// The common part of the streams of ranks and of tasks: when they answer, and their end.
template <typename Request, typename Response>
class AnsweringStream : public StreamOf<Request>, public AttemptStreams::Stream {
 public:
  AnsweringStream(AttemptStreams& streams, const core::AttemptKey& key,
                  std::shared_ptr<AttemptStreams::Attempt> attempt, Tell<Response> tell)
      : streams_(streams), key_(key), attempt_(std::move(attempt)), tell_(std::move(tell)) {}
  ~AnsweringStream() override { close(); }
  void close() final {
    {
      std::lock_guard lock(mutex_);
      if (!std::exchange(tell_, nullptr)) return;
    }
    streams_.forget(key_, this);
  }
  void news() final {
    std::lock_guard lock(mutex_);
    if (answered_at_) answer_if_due();
  }

 protected:
  virtual void answer_if_due() = 0;  // with the lock held
  bool has_long_said_nothing(core::Millis now) const {
    return !answered_at_ || now - *answered_at_ >= AttemptStreams::kAnswerEvery;
  }

  AttemptStreams& streams_;
  const core::AttemptKey key_;
  const std::shared_ptr<AttemptStreams::Attempt> attempt_;
  std::mutex mutex_;
  Tell<Response> tell_;       // null: closed
  std::uint64_t heard_ = 0;   // requests
  bool answer_soon_ = false;  // the other side waits for an answer
  // The newest answer.
  std::optional<core::Millis> answered_at_;
  core::Millis told_interval_{0};
};

/// How often ranks may send heartbeats. Pure but for its lock: every time is passed in. Thread-safe.
///
/// States: kFine -> kOverloaded -> kSlowed -> kFine. Overloaded: heartbeats are read late, so the interval handed out
/// grows (1 s, 2 s, 4 s), and each rank learns it with the next answer. Slowed: heartbeats are read in time again, at
/// the longer interval. The interval shrinks after a calm time. The calm time doubles each time the interval grows soon
/// after it shrank, so that a load that stays does not make it swing.
class Pace {
 public:
  /// Heartbeats that are read later than this are late.
  static constexpr core::Millis kLate{250};
  /// Heartbeats that are read within this are in time.
  static constexpr core::Millis kInTime{50};
  static constexpr core::Millis kLeastFloor{1000};
  static constexpr core::Millis kMostFloor{4000};
  static constexpr core::Millis kCalm{15'000};
  static constexpr core::Millis kMostCalm{240'000};
  /// A rank is missed after so many intervals at the least.
  static constexpr int kMissedAfter = 3;

  enum class State { kFine, kOverloaded, kSlowed };

  /// A controller has begun, and takes ranks over that run. The one before may have asked them for one heartbeat in
  /// kMostFloor, and they learn with their first answer that this one asks for more. So for a fresh time each rank may
  /// be unheard as if it had been told the longest interval. The time begins again when a rank or its task comes back
  /// (came_back()), for kComeBack after the start.
  void restarted(core::Millis now);
  void came_back(core::Millis now);
  static constexpr core::Millis kFresh = kMostFloor * kMissedAfter;
  static constexpr core::Millis kComeBack{120'000};

  /// Call it often. `lag`: see Reading.
  void note(core::Millis lag, core::Millis now);
  State state() const;
  /// No rank is asked to send more often than this; 0: every rank sends as often as its job says.
  core::Millis floor() const {
    const std::lock_guard lock(mutex_);
    return floor_;
  }
  core::Millis interval(core::Millis of_job) const { return std::max(of_job, floor()); }
  /// How much longer than `silent_after` a rank may be unheard: it may have been told a longer interval.
  core::Millis grace(core::Millis silent_after) const;
  /// Empty: heartbeats are read in time, at the interval of each job.
  std::string problem() const;

 private:
  void grow(core::Millis now);
  void shrink(core::Millis now);

  mutable std::mutex mutex_;
  core::Millis lag_{0};
  core::Millis floor_{0};
  std::optional<core::Millis> restarted_at_;
  core::Millis longest_{0};        // some rank may still send at this interval
  core::Millis longest_until_{0};  // until then, when it is longer than floor_
  core::Millis calm_{kCalm};
  bool late_ = false;
  core::Millis late_since_{0}, changed_at_{0}, shrunk_at_{0}, fine_since_{0};
};

/// The streams of all ranks.
///
/// A heartbeat comes in on the thread that read it. It is noted in LiveRanks, and its rows are taken into the memory of
/// MetricsWriter. A checkpoint, the start of a rank and its end are written by work(), in another thread. An answer
/// goes out when there is something to tell: the attempt's directive has changed, the interval has changed, a trace is
/// asked for, rows that the rank waits for are durable, or AttemptStreams::kAnswerEvery has passed. Nothing here
/// survives a restart: ranks open their streams anew and send what is not acknowledged. Thread-safe.
class RankStreams {
 public:
  /// The parts of a request that work() has written.
  struct Written {
    bool joined = false;            // the rank's start is in the history
    bool resumed = false;           // where the attempt has gone on from is in the history
    bool described = false;         // what the program told of its run is in the history
    std::uint32_t checkpoints = 0;  // durable, counted from the first
  };
  struct Parts {
    common::Clock& clock;
    LiveRanks& live_ranks;
    MetricsWriter& metrics;
    common::Changes& changes;
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
  /// The ranks of this attempt are asked for another trace.
  void tell_trace(const core::AttemptKey& key) { attempts_.news_for(key); }
  /// A commit of rows has come back.
  void settle();
  std::size_t open_now() const { return attempts_.open_now(); }
  /// A rank of this attempt has a stream.
  bool is_open(const core::AttemptKey& key) { return attempts_.is_open(key); }
  /// Heartbeats that have come on streams.
  std::uint64_t beats() const { return beats_; }

 private:
  class Stream;
  void wait_for_commit(const std::shared_ptr<Stream>& stream) {
    std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(stream);
  }

  Parts parts_;
  std::atomic<std::uint64_t> beats_ = 0;
  AttemptStreams attempts_;
  std::mutex waiting_mutex_;
  std::vector<std::weak_ptr<Stream>> waiting_;  // each has rows on their way
};

/// The streams of all tasks that stand beside ranks.
///
/// A request is given to the executor by the thread that read it: an executor notes it in memory. An answer goes out
/// when there is something to tell: the attempt stands elsewhere, the interval has changed, stacks are asked for, the
/// task waits for the answer, or AttemptStreams::kAnswerEvery has passed. Thread-safe.
class TaskStreams {
 public:
  struct Parts {
    common::Clock& clock;
    executors::Executor& executor;
    LiveRanks& live_ranks;
    common::Changes& changes;
    Pace& pace;
  };
  /// Whose task it is.
  struct Rank {
    core::AttemptKey attempt;
    core::RankNumber rank = 0;
    core::Millis interval{0};                   // of the job
    core::Millis stop_grace{0}, save_grace{0};  // until SIGKILL
    bool is_command = false;
    std::uint32_t world_size = 1;
  };

  explicit TaskStreams(Parts parts) : parts_(parts) {}

  /// Notes what a task says, on a stream or by a call.
  void note(const core::AttemptKey& attempt, core::RankNumber rank, const muster::v1::TaskRequest& request) const;
  /// The answer that a task is given, on a stream or to a call.
  muster::v1::TaskResponse answer(const Rank& rank, const AttemptStanding& standing) const;
  /// `standing` tells where the attempt stands now, and must not throw.
  std::shared_ptr<TaskStream> open(const Rank& rank, TellTask tell, const std::function<AttemptStanding()>& standing);
  /// The job's history has gone on: tells tasks what has changed for them.
  void follow(const core::Job& job) { attempts_.follow(job); }
  /// The tasks of this attempt are asked for other stacks.
  void tell_stacks(const core::AttemptKey& key) { attempts_.news_for(key); }

 private:
  class Stream;
  const Parts parts_;
  AttemptStreams attempts_;
};

}  // namespace ranks
