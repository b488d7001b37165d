#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>

#include "controller/common/clock.h"
#include "controller/common/hearing.h"
#include "controller/common/loop.h"

namespace common {

/// Writes a byte into a file of the data folder when asked, so that Hearing knows of a disk that stands still though
/// nothing else is written. Thread-safe; one thread of its own.
class DiskProbe {
 public:
  /// A question sooner than this after the last write, of whatever kind, is not asked: that write was the answer.
  static constexpr core::Millis kAgainAfter{500};

  /// Without threads it does nothing.
  DiskProbe(Hearing& hearing, Clock& clock, std::filesystem::path file, bool threads);

  /// Returns at once.
  void ask();
  /// The same, and waits until it is done, at most `patience`.
  void ask_and_wait(core::Millis patience);

 private:
  std::optional<core::Millis> write();

  Hearing& hearing_;
  Clock& clock_;
  const std::filesystem::path file_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool wanted_ = false;  // until the write that was asked for is done
  Loop loop_;
};

}  // namespace common
