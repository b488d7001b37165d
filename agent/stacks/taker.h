#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/stacks/take.h"

namespace agent::stacks {

/// Takes stacks for an agent, in a thread of its own that begins with the first request: heartbeats and news of ends
/// wait for none of it. Thread-safe.
class Taker {
 public:
  /// Called in that thread for each rank that has a stack. It may wait for a disk or the network, and must not throw.
  using Keep = std::function<void(std::uint64_t number, std::uint32_t rank, const std::string& text)>;
  explicit Taker(Keep keep) : keep_(std::move(keep)) {}
  /// Waits for the request under way, a few seconds at most.
  ~Taker();
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

  /// Returns at once. A number is answered once, however often it is asked; a newer one replaces one that waits.
  void ask(std::uint64_t number, std::vector<Rank> ranks);

 private:
  void run();

  const Keep keep_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::uint64_t newest_ = 0;  // that was asked for
  bool waits_ = false;        // it is not begun yet
  bool closed_ = false;
  std::vector<Rank> ranks_;
  std::thread thread_;
};

}  // namespace agent::stacks
