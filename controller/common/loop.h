#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "controller/core/job.h"

namespace common {

/// A thread that calls a step again and again. The loop owns the thread, its sleep and its end, so that its owner holds
/// only what the step works on.
///
/// Without threads the loop calls nothing by itself, and a test or a simulation calls step() where it wants the work
/// done. Thread-safe.
class Loop {
 public:
  /// The pause after a step that threw.
  static constexpr core::Millis kAfterTrouble{1000};

  /// Does what is due. Returns the pause before the next call; nullopt: until wake(). A step that has nothing to wait
  /// for but a wake() says nullopt: a loop that looks now and then wakes a processor for nothing.
  using Step = std::function<std::optional<core::Millis>()>;

  /// `name`: of the thread, for `top -H` and debuggers; at most 15 bytes. `trouble` begins the log line about a step
  /// that throws: "the policies could not be read again".
  Loop(std::string name, std::string trouble, bool threads, Step step);
  /// Closes the loop as close() does.
  ~Loop() { close(); }

  /// The first step follows after `pause`; at once where there is none.
  void start(core::Millis pause = core::Millis(0));
  /// The next step begins at once, or right after the one under way.
  void wake();
  /// No further step begins. The step under way goes on, and may ask is_closed() to end early.
  void stop();
  /// Stops as stop() does, and waits for the step under way. Not to be called from a step.
  void close() {
    stop();
    if (thread_.joinable()) thread_.join();
  }
  bool is_closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  /// True from start() on, with threads.
  bool is_running() const {
    std::lock_guard lock(mutex_);
    return running_;
  }
  /// One step in the caller's thread, whatever its time. Returns what the step returns. The owner calls it only without
  /// threads.
  std::optional<core::Millis> step() { return try_step(); }

 private:
  void run(std::optional<core::Millis> pause);
  std::optional<core::Millis> try_step();

  const std::string name_, trouble_;
  const bool threads_;
  const Step step_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool awake_ = false;
  bool closed_ = false;
  bool running_ = false;
  std::thread thread_;
};

/// Does in a thread of its own what may wait for a disk, for callers that must not wait for long. Its end waits for the
/// errand under way; errands that still wait are not done. Thread-safe.
class Errands {
 public:
  /// Errands that wait beyond this are not done at all.
  static constexpr std::size_t kMostWaiting = 1024;

  /// Without threads, run() does it in the caller's thread.
  explicit Errands(bool threads);

  /// True if it is done; false if it is not within `patience`: later, or not at all. One that throws is told in the
  /// log.
  bool run(std::function<void()> errand, core::Millis patience);

 private:
  struct Errand {
    std::function<void()> body;
    std::promise<bool> done;
  };
  std::optional<core::Millis> work();

  const bool threads_;
  std::mutex mutex_;
  std::deque<Errand> waiting_;
  Loop loop_;
};

}  // namespace common
