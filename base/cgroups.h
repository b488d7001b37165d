#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace base {

/// A control group above a process, or its own.
struct Cgroup {
  std::string name;              // "/slurm/job_7"; "/": the topmost that the process sees
  std::filesystem::path folder;  // where its files are
  bool operator==(const Cgroup&) const = default;
};

/// The groups of a process that a controller ("cpu", "memory") may limit, its own first and then those above it. A
/// process may be in some of either version.
struct Cgroups {
  std::vector<Cgroup> first;   // of version 1, in the controller's own tree
  std::vector<Cgroup> second;  // of version 2
};

/// The groups of a process whose /proc/<pid>/cgroup is `cgroup_file`, with both versions mounted at `mounted_at`. A
/// container may see its own group as the topmost one, by a name that it cannot follow: whoever reads a file of a group
/// that is not there goes on to the next one.
Cgroups cgroups_of(const std::string& controller, const std::filesystem::path& cgroup_file = "/proc/self/cgroup",
                   const std::filesystem::path& mounted_at = "/sys/fs/cgroup");

/// How much memory this process may use, together with the others below the same limit.
struct MemoryLimit {
  std::int64_t bytes = 0;  ///< 0: not known
  std::string of;          ///< what sets it: "this machine", or "the cgroup /slurm/job_7"
};

/// The smallest of the machine's memory and the limits of this process's cgroup and those above it.
MemoryLimit memory_limit();

/// The memory limit of a process whose /proc/<pid>/cgroup is `cgroup_file`, with both versions of cgroups mounted at
/// `mounted_at`, on a machine whose /proc/meminfo is `machine_file`. For tests.
MemoryLimit memory_limit(const std::filesystem::path& cgroup_file, const std::filesystem::path& mounted_at,
                         const std::filesystem::path& machine_file);

/// How many cores this process may use, together with the others below the same limit.
struct CoreLimit {
  std::uint32_t cores = 1;
  std::string of;  ///< what sets it: "this machine", or "the cgroup /docker/5b1b"
};

/// The smaller one of the cores that this process may run on (sched_getaffinity) and the CPU time that its cgroup and
/// those above it may have. A quota of two and a half cores counts as two, one below a core as one.
CoreLimit core_limit();

/// The core limit of a process that may run on `cores`, whose /proc/<pid>/cgroup is `cgroup_file`, with both versions
/// of cgroups mounted at `mounted_at`. For tests.
CoreLimit core_limit(std::uint32_t cores, const std::filesystem::path& cgroup_file,
                     const std::filesystem::path& mounted_at);

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
  /// The best counter file for a process whose /proc/<pid>/cgroup is `cgroup_file`; with both versions of cgroups.
  static std::filesystem::path counter_file_of(const std::filesystem::path& cgroup_file,
                                               const std::filesystem::path& mounted_at);
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
