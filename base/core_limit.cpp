#include "base/core_limit.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/cgroups.h"
#include "base/first_word.h"

namespace base {
namespace {

namespace fs = std::filesystem;

/// The cores on which this process may run.
std::uint32_t allowed_cores() {
  for (int most = 1024; most <= (1 << 20); most *= 2) {
    cpu_set_t* set = CPU_ALLOC(most);
    const auto size = CPU_ALLOC_SIZE(most);
    const bool known = set != nullptr && ::sched_getaffinity(0, size, set) == 0;
    const int count = known ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (known) return static_cast<std::uint32_t>(std::max(count, 1));
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

/// A number of a file of a cgroup; 0: there is none, or no limit ("max", -1).
std::int64_t positive(const std::string& word) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() && number > 0 ? number : 0;
}

/// `quota` of each `period`, in microseconds.
void lower(CoreLimit& limit, const Cgroup& group, const std::string& quota, const std::string& period) {
  const auto most = positive(quota), each = positive(period);
  if (most == 0 || each == 0) return;
  const auto cores = std::max<std::int64_t>(most / each, 1);
  if (cores < limit.cores) limit = {static_cast<std::uint32_t>(cores), "the cgroup " + group.name};
}

}  // namespace

CoreLimit core_limit(std::uint32_t cores, const fs::path& cgroup_file, const fs::path& mounted_at) {
  CoreLimit limit{std::max(cores, 1u), "this machine"};
  const auto groups = cgroups_of("cpu", cgroup_file, mounted_at);
  for (const auto& group : groups.second) {
    std::string quota, period;
    std::ifstream(group.folder / "cpu.max") >> quota >> period;
    lower(limit, group, quota, period);
  }
  for (const auto& group : groups.first) {
    lower(limit, group, first_word(group.folder / "cpu.cfs_quota_us"), first_word(group.folder / "cpu.cfs_period_us"));
  }
  return limit;
}

CoreLimit core_limit() {
  return core_limit(allowed_cores(), "/proc/self/cgroup", "/sys/fs/cgroup");
}

}  // namespace base
