#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace base {

/// How much memory this process may use, together with the others below the same limit.
struct MemoryLimit {
  std::int64_t bytes = 0;  ///< 0: not known
  std::string of;          ///< what sets it: "this machine", or "the cgroup /slurm/job_7"
};

/// The smallest of the machine's memory and the limits of this process's cgroup and those above it. Tests name other
/// files: the /proc/<pid>/cgroup of a process, where both versions of cgroups are mounted, and /proc/meminfo.
MemoryLimit memory_limit(const std::filesystem::path& cgroup_file = "/proc/self/cgroup",
                         const std::filesystem::path& mounted_at = "/sys/fs/cgroup",
                         const std::filesystem::path& machine_file = "/proc/meminfo");

/// How many cores this process may use, together with the others below the same limit.
struct CoreLimit {
  std::uint32_t cores = 1;
  std::string of;  ///< what sets it: "this machine", or "the cgroup /docker/5b1b"
};

/// The cores that this process may run on (sched_getaffinity).
std::uint32_t allowed_cores();

/// The smaller one of `cores` and the CPU time that this process's cgroup and those above it may have. A quota of two
/// and a half cores counts as two, one below a core as one. Tests name other files, as for memory_limit().
CoreLimit core_limit(std::uint32_t cores = allowed_cores(),
                     const std::filesystem::path& cgroup_file = "/proc/self/cgroup",
                     const std::filesystem::path& mounted_at = "/sys/fs/cgroup");

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

  /// Where this process's cgroup counts: its own processes alone, with both versions of cgroups. Else /proc/vmstat, the
  /// machine's.
  static std::filesystem::path best_counter_file(const std::filesystem::path& cgroup_file = "/proc/self/cgroup",
                                                 const std::filesystem::path& mounted_at = "/sys/fs/cgroup");
  /// True if the file counts the processes of one task of a Slurm step, and no others.
  static bool is_slurm_tasks(const std::filesystem::path& counter_file);

 private:
  std::optional<std::uint64_t> read() const;

  std::filesystem::path file_;
  std::optional<std::uint64_t> older_;
  std::optional<std::uint64_t> newer_;
  Time turned_;
};

}  // namespace base
