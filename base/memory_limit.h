#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace base {

/// How much memory this process may use, together with the others below the same limit.
struct MemoryLimit {
  std::int64_t bytes = 0;  ///< 0: not known
  std::string of;          ///< what sets it: "this machine", or "the cgroup /slurm/job_7"
};

/// The smallest of the machine's memory and the limits of this process's cgroup and those above it.
MemoryLimit memory_limit();

/// The same of a process whose /proc/<pid>/cgroup is `cgroup_file`, with both versions of cgroups mounted at
/// `mounted_at`, on a machine whose /proc/meminfo is `machine_file`. For tests.
MemoryLimit memory_limit(const std::filesystem::path& cgroup_file, const std::filesystem::path& mounted_at,
                         const std::filesystem::path& machine_file);

}  // namespace base
