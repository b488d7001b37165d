#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace worker::task {

/// How far a rank's program has come, as muster-task saw it.
struct RankStatus {
  enum class State { kRunning, kExited, kStepLost };
  State state = State::kRunning;
  std::string node;
  std::int64_t pid = 0;
  int exit_code = 0;  // of kExited and kStepLost: one of the two is 0
  int signal = 0;
  std::int64_t ended_at_ms = 0;   // by the node's clock; 0: not ended
  bool out_of_memory = false;     // the kernel killed it for memory
  std::vector<int> signals_seen;  // from outside, in order
  std::string trouble;            // why it could not be started; empty otherwise
  std::string error;              // the program's own words about its end; empty: it left none
};

/// Writes <attempt>/ranks/rank-<n>.json, durable when it returns: under another name first, so that a reader sees the
/// old text or the new. What a controller that was away, or a message that was lost, missed. Throws std::system_error.
void write_status(const std::filesystem::path& attempt_folder, int rank, const RankStatus& status);

/// Writes the newest status in a thread of its own: a disk that stands still holds up nothing else of a task. What
/// can't be written is said on stderr. Signals are to be blocked before it is made.
class StatusKeeper {
 public:
  StatusKeeper(std::filesystem::path attempt_folder, int rank);
  ~StatusKeeper() { finish(); }
  StatusKeeper(const StatusKeeper&) = delete;
  StatusKeeper& operator=(const StatusKeeper&) = delete;

  /// Instead of one that has not been begun. Waits for nothing.
  void put(const RankStatus& status);
  /// Waits until the newest is written, however long the disk takes: the kernel would keep the process as long.
  void finish();

 private:
  void run();

  const std::filesystem::path attempt_folder_;
  const int rank_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<RankStatus> next_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace worker::task
