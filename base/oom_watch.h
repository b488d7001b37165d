#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace base {

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

  /// Where this process's cgroup counts: its own processes alone. Else /proc/vmstat, the machine's.
  static std::filesystem::path best_counter_file();
  /// The same, of a process whose /proc/<pid>/cgroup is this; with both versions of cgroups.
  static std::filesystem::path counter_file_of(const std::filesystem::path& cgroup_file,
                                               const std::filesystem::path& mounted_at);
  /// Whether such a file counts the processes of one task of a Slurm step, and no others.
  static bool is_slurm_tasks(const std::filesystem::path& counter_file);

 private:
  std::optional<std::uint64_t> read() const;

  std::filesystem::path file_;
  std::optional<std::uint64_t> older_;
  std::optional<std::uint64_t> newer_;
  Time turned_;
};

}  // namespace base
