#pragma once

#include <filesystem>
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

/// Of a process whose /proc/<pid>/cgroup is `cgroup_file`, with both versions mounted at `mounted_at`. A container may
/// see its own group as the topmost one, by a name that it cannot follow: whoever reads a file of a group that is not
/// there goes on to the next one.
Cgroups cgroups_of(const std::string& controller, const std::filesystem::path& cgroup_file = "/proc/self/cgroup",
                   const std::filesystem::path& mounted_at = "/sys/fs/cgroup");

}  // namespace base
