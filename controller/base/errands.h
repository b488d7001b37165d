#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "base/loop.h"
#include "core/types.h"

namespace base {

/// Does in a thread of its own what may wait for a disk, for callers that must not wait for long. Its end waits for the
/// errand under way; errands that still wait are not done. Thread-safe.
class Errands {
 public:
  /// Errands that wait beyond this are not done at all.
  static constexpr std::size_t kMostWaiting = 1024;

  /// Without threads, run() does it in the caller's thread.
  explicit Errands(bool threads);

  /// `errand` must not throw. True if it is done; false if it is not within `patience`: later, or not at all.
  bool run(std::function<void()> errand, core::Millis patience);

 private:
  struct Errand {
    std::function<void()> body;
    bool done = false;
  };
  /// Does the oldest errand; false: none waits.
  bool work();

  const bool threads_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::deque<std::shared_ptr<Errand>> waiting_;
  Loop loop_;
};

}  // namespace base
