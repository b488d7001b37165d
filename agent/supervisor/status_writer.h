#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "agent/supervisor/status_log.h"

namespace runtime::local {

/// Puts lines into a StatusLog in a thread of its own: a disk that stands still holds up neither the news of a rank's
/// end nor a stop. What a disk refuses is tried again every kTryAgain. All calls from one thread.
class StatusWriter {
 public:
  static constexpr std::chrono::milliseconds kTryAgain{1000};
  /// add() waits so long at most for the system to take a line, so that it outlives this process.
  static constexpr std::chrono::milliseconds kPatience{100};

  /// `log` is this object's from here on.
  explicit StatusWriter(StatusLog& log);
  /// Waits for what the thread does at the moment.
  ~StatusWriter();
  StatusWriter(const StatusWriter&) = delete;
  StatusWriter& operator=(const StatusWriter&) = delete;

  /// Waits for nothing while an earlier line is still not taken.
  void add(const std::string& line);
  /// Every line is on disk.
  bool recorded() const;

 private:
  void run();
  void put(std::unique_lock<std::mutex>& lock);

  StatusLog& log_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, progress_;
  std::deque<std::string> pending_;
  std::size_t added_ = 0, written_ = 0, recorded_ = 0;  // lines
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace runtime::local
