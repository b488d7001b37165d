#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/types.h"

namespace rpc {

/// Lets ranks wait for rank 0's address without holding a thread each. Thread-safe.
class RendezvousWaiters {
 public:
  /// How long a rank waits for one answer. After a time-out the rank asks again.
  static constexpr core::Millis kPatience{2000};
  using Clock = std::chrono::steady_clock;

  explicit RendezvousWaiters(std::size_t most_waiting);
  /// Calls `on_time_out` of every waiter.
  ~RendezvousWaiters();
  RendezvousWaiters(const RendezvousWaiters&) = delete;
  RendezvousWaiters& operator=(const RendezvousWaiters&) = delete;

  /// The number of announcements so far. Read it before asking the controller and give it to wait(), so that an address
  /// that arrives in between is not missed.
  std::uint64_t news() const;

  enum class Waiting { kYes, kNewsSince, kFull };
  /// If the answer is kYes, exactly one of `on_news` and `on_time_out` is called later, from another thread. If it is
  /// not, neither is called.
  Waiting wait(const core::AttemptKey& attempt, std::uint64_t news_seen, Clock::time_point until,
               std::function<void()> on_news, std::function<void()> on_time_out);

  /// Rank 0 of `attempt` has reported its address: calls `on_news` of the attempt's waiters.
  void announce(const core::AttemptKey& attempt);

  /// Calls `on_time_out` of every waiter, present and future.
  void close();

 private:
  struct Waiter {
    Clock::time_point until;
    std::function<void()> on_news, on_time_out;
  };
  void watch_time();

  const std::size_t most_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::uint64_t news_ = 0;
  std::multimap<core::AttemptKey, Waiter> waiters_;
  bool closed_ = false;
  bool ending_ = false;
  std::thread timer_;
};

}  // namespace rpc
