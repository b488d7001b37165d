#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "ranks/attempt_standing.h"

namespace ranks {

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
  /// What the streams of one attempt share.
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
  std::size_t open_now() const { return open_; }

 private:
  std::mutex mutex_;
  std::atomic<std::size_t> open_ = 0;
  std::map<core::AttemptKey, std::shared_ptr<Attempt>> attempts_;
};

}  // namespace ranks
