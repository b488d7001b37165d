#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace base {

/// How many cores this process may use, together with the others below the same limit.
struct CoreLimit {
  std::uint32_t cores = 1;
  std::string of;  ///< what sets it: "this machine", or "the cgroup /docker/5b1b"
};

/// The smaller one of the cores that this process may run on (sched_getaffinity) and the CPU time that its cgroup and
/// those above it may have. A quota of two and a half cores counts as two, one below a core as one.
CoreLimit core_limit();

/// The same of a process that may run on `cores`, whose /proc/<pid>/cgroup is `cgroup_file`, with both versions of
/// cgroups mounted at `mounted_at`. For tests.
CoreLimit core_limit(std::uint32_t cores, const std::filesystem::path& cgroup_file,
                     const std::filesystem::path& mounted_at);

}  // namespace base
