#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/client.h"

namespace cli {

struct LogOptions {
  std::int64_t job = 0;
  std::uint32_t attempt = 0;  // 0: the newest; with follow, also later ones
  std::optional<std::uint32_t> rank = {};
  bool slurm = false;      // print Slurm's log, not the ranks' logs
  std::uint32_t tail = 0;  // 0: all lines
  bool follow = false;
  bool json = false;
  bool timestamps = false;  // print before each line when it was seen
  bool tell_empty = false;  // say on stderr if the log is empty
};

/// The terminal on which two threads print: a log, and words that are said while the log is quiet.
class SharedScreen {
 public:
  /// Prints at once.
  void print(const std::function<void()>& write) {
    const std::lock_guard lock(mutex_);
    write();
    last_ = Clock::now();
  }
  /// Prints if nothing was printed for this long. Returns false if something was.
  bool print_if_quiet(std::chrono::seconds time, const std::function<void()>& write) {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - last_ < time) return false;
    write();
    last_ = Clock::now();
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  Clock::time_point last_ = Clock::now();
};

/// Prints a job's log lines to `out`. If there are several ranks, each line begins with its rank, unless it does so
/// itself. A new attempt is announced on stderr. After a lost connection the log goes on where it stopped.
/// With a `screen`, other threads may print meanwhile.
StreamEnd print_logs(Client& client, const LogOptions& options, std::ostream& out, SharedScreen* screen = nullptr);

/// If the newest attempt ran on Slurm and failed before any rank had a process: the last lines of Slurm's log of it,
/// safe for a terminal. Empty: another attempt, or the log cannot be read.
std::vector<std::string> slurm_words(Client& client, const muster::v1::Job& job);

/// How to read Slurm's log of the newest attempt: its path, or a command if the path is not known; empty: there is no
/// such log.
std::string slurm_log_place(const muster::v1::Job& job);

}  // namespace cli
