#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "controller/common/outcome.h"
#include "controller/core/job.h"
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
  bool is_open(const core::AttemptKey& key);

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

}  // namespace ranks
