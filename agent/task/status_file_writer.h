#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "agent/protocol/files.h"

namespace agent::task {

/// Writes a rank's status file (see agent/protocol/files.h), durable when it returns. The text is written under
/// another name first, so that a reader sees the old text or the new. Throws std::system_error.
void write_status(const std::filesystem::path& attempt_folder, int rank, const protocol::RankStatus& status);

/// Writes the newest status in a thread of its own: a disk that stands still holds up nothing else of a task. A status
/// that cannot be written is reported on stderr.
class StatusFileWriter {
 public:
  StatusFileWriter(std::filesystem::path attempt_folder, int rank);
  ~StatusFileWriter() { finish(); }
  StatusFileWriter(const StatusFileWriter&) = delete;
  StatusFileWriter& operator=(const StatusFileWriter&) = delete;

  /// Replaces a status whose writing has not begun. Returns at once.
  void put(const protocol::RankStatus& status);
  /// Waits until the newest status is written, however long the disk takes: the kernel would keep the process as long.
  void finish();

 private:
  void run();

  const std::filesystem::path attempt_folder_;
  const int rank_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<protocol::RankStatus> next_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace agent::task
