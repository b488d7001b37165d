#include "os/memory_limit.h"

#include <fstream>

namespace os {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 64;  // cgroups above a process

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

/// Lowers `limit` to the limits of `group` and of those above it. `root` is the folder of the cgroup "/".
void lower(MemoryLimit& limit, const fs::path& root, fs::path group, const char* file) {
  for (int level = 0; level < kDeepest; ++level) {
    const auto bytes = number_in(root / group.relative_path() / file);
    if (bytes > 0 && (limit.bytes == 0 || bytes < limit.bytes)) limit = {bytes, "the cgroup " + group.native()};
    if (!group.has_relative_path()) return;
    group = group.parent_path();
  }
}

}  // namespace

MemoryLimit memory_limit(const fs::path& cgroup_file, const fs::path& mounted_at, const fs::path& machine_file) {
  MemoryLimit limit{memory_of_machine(machine_file), "this machine"};
  std::ifstream groups(cgroup_file);
  // "<number>:<controllers>:<path>", of the second version "0::<path>".
  for (std::string line; std::getline(groups, line);) {
    const auto colon = line.find(':'), second = line.find(':', colon + 1);
    if (colon == std::string::npos || second == std::string::npos) continue;
    const auto controllers = line.substr(colon + 1, second - colon - 1), path = line.substr(second + 1);
    if (controllers.empty()) lower(limit, mounted_at, path, "memory.max");
    if (controllers == "memory") lower(limit, mounted_at / "memory", path, "memory.limit_in_bytes");
  }
  return limit;
}

MemoryLimit memory_limit() {
  return memory_limit("/proc/self/cgroup", "/sys/fs/cgroup", "/proc/meminfo");
}

}  // namespace os
