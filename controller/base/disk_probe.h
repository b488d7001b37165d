#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/hearing.h"

namespace runtime {

/// Writes a byte into a file of the data folder when asked, so that Hearing knows of a disk that stands still though
/// nothing else is written. Thread-safe; one thread of its own.
class DiskProbe {
 public:
  /// Asked again sooner than this after the last write of whatever kind it does nothing.
  static constexpr core::Millis kAgainAfter{500};

  /// Without threads it does nothing.
  DiskProbe(Hearing& hearing, Clock& clock, std::filesystem::path file, bool threads);
  ~DiskProbe();
  DiskProbe(const DiskProbe&) = delete;
  DiskProbe& operator=(const DiskProbe&) = delete;

  /// Returns at once.
  void ask();
  /// The same, and waits until it is done, at most `patience`.
  void ask_and_wait(core::Millis patience);

 private:
  void run();

  Hearing& hearing_;
  Clock& clock_;
  const std::filesystem::path file_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  bool wanted_ = false, closed_ = false;  // wanted: until it is done
  std::thread thread_;
};

}  // namespace runtime
