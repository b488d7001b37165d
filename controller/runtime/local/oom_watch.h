#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace runtime::local {

/// Tells whether the kernel killed something for memory lately, from the counter `oom_kill` in a file such as
/// /proc/vmstat or a cgroup's memory.events. Lately: within the last one to two windows, because a large process takes
/// a while to die, and a kill of long ago must not be blamed for a later death.
class OomWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kWindow{60};

  OomWatch(std::filesystem::path counter_file, Time now);

  /// To be called at least once a window.
  void tick(Time now);
  /// False too when the file cannot be read.
  bool killed_lately(Time now);

  /// This process's cgroup's memory.events, which counts its own processes alone; else /proc/vmstat, the machine's.
  static std::filesystem::path best_counter_file();

 private:
  std::optional<std::uint64_t> read() const;

  std::filesystem::path file_;
  std::optional<std::uint64_t> older_;
  std::optional<std::uint64_t> newer_;
  Time turned_;
};

}  // namespace runtime::local
