#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "controller/core/job.h"

namespace musterd {

/// The exit code of a musterd that did not leave in time.
inline constexpr int kExitNotLeft = 1;

/// Bounds how long musterd takes to leave. Anybody who holds a call, and any disk, could keep an orderly end from
/// ending. Nothing is lost by the end that follows then: what was promised is in the store, attempts go on, and the
/// next musterd finds out the rest, as after a crash.
///
/// After `limit` the process ends with kExitNotLeft, and the log says which step it was in. Without begin() nothing is
/// bounded. Thread-safe.
class Leaving {
 public:
  explicit Leaving(core::Millis limit) : limit_(limit) {}
  /// Everything is done in time.
  ~Leaving();

  /// The time begins. A second call changes nothing.
  void begin() {
    const std::lock_guard lock(mutex_);
    if (!watcher_.joinable()) watcher_ = std::thread([this] { watch(); });
  }
  /// Names the step that is done from now on, for the log: "closing the port of gRPC".
  void now(std::string step) {
    const std::lock_guard lock(mutex_);
    step_ = std::move(step);
  }

 private:
  void watch();

  const core::Millis limit_;
  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::string step_ = "beginning";
  std::thread watcher_;
};

}  // namespace musterd
