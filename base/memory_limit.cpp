#include "base/memory_limit.h"

#include <fstream>
#include <vector>

#include "base/cgroups.h"

namespace base {
namespace {

namespace fs = std::filesystem;

/// MemTotal, or 0.
std::int64_t memory_of_machine(const fs::path& file) {
  std::ifstream in(file);
  std::string name;
  std::int64_t kib = 0;
  while (in >> name) {
    if (name == "MemTotal:") return in >> kib ? kib * 1024 : 0;
    in.ignore(256, '\n');
  }
  return 0;
}

/// The number in a cgroup's file; 0: there is none, such as "max".
std::int64_t number_in(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t bytes = 0;
  return in >> bytes ? bytes : 0;
}

/// Lowers `limit` to the limits of the groups.
void lower(MemoryLimit& limit, const std::vector<Cgroup>& groups, const char* file) {
  for (const auto& group : groups) {
    const auto bytes = number_in(group.folder / file);
    if (bytes > 0 && (limit.bytes == 0 || bytes < limit.bytes)) limit = {bytes, "the cgroup " + group.name};
  }
}

}  // namespace

MemoryLimit memory_limit(const fs::path& cgroup_file, const fs::path& mounted_at, const fs::path& machine_file) {
  MemoryLimit limit{memory_of_machine(machine_file), "this machine"};
  const auto groups = cgroups_of("memory", cgroup_file, mounted_at);
  lower(limit, groups.second, "memory.max");
  lower(limit, groups.first, "memory.limit_in_bytes");
  return limit;
}

MemoryLimit memory_limit() {
  return memory_limit("/proc/self/cgroup", "/sys/fs/cgroup", "/proc/meminfo");
}

}  // namespace base
