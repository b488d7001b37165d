#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "base/fd.h"

namespace agent::program {

/// Appends to an agent's status file (see agent/protocol/facts.h). One writer, the agent.
class StatusLog {
 public:
  /// Makes no file yet. `ranks`: how many the agent has, from `first_rank` on.
  StatusLog(std::filesystem::path folder, std::uint32_t first_rank, std::size_t ranks);

  /// Adds lines; write() and flush() write them.
  void add(const std::string& line) { lines_ += line; }
  /// Hands every line to the system, which keeps it through the death of this process, though not of the machine. The
  /// first call begins an empty file with room for the ranks' facts set aside, so that a disk that fills up later does
  /// not lose them. False: the disk refused (errno says why).
  bool write();
  /// True when every line is on disk; a slow disk makes the call slow. False: the disk refused (errno says why); call
  /// flush() again later.
  bool flush();
  /// Empties the file, as far as the disk allows, when nothing was started after all.
  void erase();

 private:
  bool begin();

  const std::filesystem::path folder_;
  const std::string name_;
  const std::size_t ranks_;
  base::Fd file_;
  std::string lines_;
  std::size_t written_ = 0;
  bool synced_ = true;
};

/// Puts lines into a StatusLog in a thread of its own: a disk that stands still holds up neither the news of a rank's
/// end nor a stop. Lines that a disk refuses are tried again every kTryAgain. All calls come from one thread.
class StatusWriter {
 public:
  static constexpr std::chrono::milliseconds kTryAgain{1000};
  /// The longest wait of add() for the system to take a line. A line that the system has taken outlives this process.
  static constexpr std::chrono::milliseconds kPatience{100};

  /// Nothing else may use `log` from here on.
  explicit StatusWriter(StatusLog& log);
  /// Waits for the write that is under way.
  ~StatusWriter();
  StatusWriter(const StatusWriter&) = delete;
  StatusWriter& operator=(const StatusWriter&) = delete;

  /// Returns at once while the system has not taken an earlier line.
  void add(const std::string& line);
  /// Every line is on disk.
  bool recorded() const;
  /// The disk has refused the newest line, or one before it; why. Empty: it has not.
  std::string refusal() const;

 private:
  void run();
  void put(std::unique_lock<std::mutex>& lock);

  StatusLog& log_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, progress_;
  std::deque<std::string> pending_;
  std::size_t added_ = 0, written_ = 0, recorded_ = 0;  // lines
  std::string refusal_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace agent::program
