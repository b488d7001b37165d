#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/types.h"

namespace runtime {

/// Does what may wait for a disk, in a thread of its own, for those who must not wait for long. Thread-safe.
class Errands {
 public:
  /// Errands that wait beyond this are not done at all.
  static constexpr std::size_t kMostWaiting = 1024;

  /// Without threads, run() does it in the caller's thread.
  explicit Errands(bool threads);
  /// Waits for the one under way; those that wait are not done.
  ~Errands();
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  /// `errand` must not throw. True if it is done; false if it is not within `patience`: later, or not at all.
  bool run(std::function<void()> errand, core::Millis patience);

 private:
  struct Errand {
    std::function<void()> body;
    bool done = false;
  };
  void work();

  const bool threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<std::shared_ptr<Errand>> waiting_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace runtime
