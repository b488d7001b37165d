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

/// Where ranks wait for rank 0's address without holding a thread each. Thread-safe.
class RendezvousDesk {
 public:
  /// How long a rank waits before it is told "not yet" and asks again.
  static constexpr core::Millis kPatience{2000};
  using Clock = std::chrono::steady_clock;

  explicit RendezvousDesk(std::size_t most_waiting);
  /// Every waiter is told `on_time_out`.
  ~RendezvousDesk();
  RendezvousDesk(const RendezvousDesk&) = delete;
  RendezvousDesk& operator=(const RendezvousDesk&) = delete;

  /// To be read before asking the controller and given to `wait`, so that an address that arrives in between is not
  /// missed.
  std::uint64_t news() const;

  enum class Waiting { kYes, kNewsSince, kFull };
  /// Later, and from another thread, exactly one of `on_news` and `on_time_out` is called; with another answer than
  /// kYes, neither.
  Waiting wait(const core::AttemptKey& attempt, std::uint64_t news_seen, Clock::time_point until,
               std::function<void()> on_news, std::function<void()> on_time_out);

  /// Rank 0 of `attempt` has said where it listens.
  void announce(const core::AttemptKey& attempt);

  /// Every waiter, now and later, is told `on_time_out`.
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
