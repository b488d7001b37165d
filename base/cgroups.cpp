#include "base/cgroups.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "base/words.h"

namespace base {

namespace fs = std::filesystem;

namespace {

constexpr int kDeepest = 64;  // cgroups above a process

/// A control group above a process, or its own.
struct Cgroup {
  std::string name;  // "/slurm/job_7"; "/": the topmost that the process sees
  fs::path folder;   // where its files are
};

/// The groups of a process that a controller ("cpu", "memory") may limit, its own first and then those above it. A
/// process may be in some of either version.
struct Cgroups {
  std::vector<Cgroup> first;   // of version 1, in the controller's own tree
  std::vector<Cgroup> second;  // of version 2
};

/// The controllers and the path of each group; without controllers it is of the second version.
std::vector<std::pair<std::string, std::string>> groups_in(const fs::path& cgroup_file) {
  std::vector<std::pair<std::string, std::string>> all;
  std::ifstream lines(cgroup_file);
  // "<number>:<controllers>:<path>", of the second version "0::<path>".
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':'), second = line.find(':', colon + 1);
    if (colon == std::string::npos || second == std::string::npos) continue;
    all.emplace_back(line.substr(colon + 1, second - colon - 1), line.substr(second + 1));
  }
  return all;
}

/// `root` is the folder of the group "/".
std::vector<Cgroup> upwards(const fs::path& root, fs::path group) {
  std::vector<Cgroup> all;
  while (all.size() < kDeepest) {
    all.push_back({group.native(), root / group.relative_path()});
    if (!group.has_relative_path()) break;
    group = group.parent_path();
  }
  return all;
}

/// The tree of several controllers is mounted by all their names, and most machines have a link for each.
fs::path tree_of(const fs::path& mounted_at, const std::string& controllers, const std::string& wanted) {
  std::error_code unknown;
  return fs::exists(mounted_at / controllers, unknown) ? mounted_at / controllers : mounted_at / wanted;
}

/// The second version stands beside the first one where a machine has both.
fs::path second_tree(const fs::path& mounted_at) {
  std::error_code unknown;
  return fs::exists(mounted_at / "unified", unknown) ? mounted_at / "unified" : mounted_at;
}

/// The groups of a process whose /proc/<pid>/cgroup is `cgroup_file`, with both versions mounted at `mounted_at`. A
/// container may see its own group as the topmost one, by a name that it cannot follow: whoever reads a file of a group
/// that is not there goes on to the next one.
Cgroups cgroups_of(const std::string& controller, const fs::path& cgroup_file, const fs::path& mounted_at) {
  Cgroups found;
  for (const auto& [controllers, path] : groups_in(cgroup_file)) {
    if (controllers.empty()) found.second = upwards(second_tree(mounted_at), path);
    const auto names = split(controllers, ',');
    if (std::ranges::find(names, controller) == names.end()) continue;
    found.first = upwards(tree_of(mounted_at, controllers, controller), path);
  }
  return found;
}

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

/// A number of a file of a cgroup; 0: there is none, or no limit ("max", -1).
std::int64_t positive(const std::string& word) {
  return std::max<std::int64_t>(whole_number<std::int64_t>(word).value_or(0), 0);
}

/// `quota` of each `period`, in microseconds.
void lower(CoreLimit& limit, const Cgroup& group, const std::string& quota, const std::string& period) {
  const auto most = positive(quota), each = positive(period);
  if (most == 0 || each == 0) return;
  const auto cores = std::max<std::int64_t>(most / each, 1);
  if (cores < limit.cores) limit = {static_cast<std::uint32_t>(cores), "the cgroup " + group.name};
}

}  // namespace

MemoryLimit memory_limit(const fs::path& cgroup_file, const fs::path& mounted_at, const fs::path& machine_file) {
  MemoryLimit limit{memory_of_machine(machine_file), "this machine"};
  const auto groups = cgroups_of("memory", cgroup_file, mounted_at);
  lower(limit, groups.second, "memory.max");
  lower(limit, groups.first, "memory.limit_in_bytes");
  return limit;
}

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

OomWatch::OomWatch(fs::path counter_file, Time now)
    : file_(std::move(counter_file)), older_(read()), newer_(older_), turned_(now) {}

std::optional<std::uint64_t> OomWatch::read() const {
  std::ifstream file(file_);
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return std::nullopt;
}

void OomWatch::tick(Time now) {
  if (now - turned_ < kWindow) return;
  older_ = newer_;
  newer_ = read();
  turned_ = now;
}

bool OomWatch::killed_lately(Time now) {
  const auto count = read();
  const bool grew = count && older_ && *count > *older_;
  tick(now);
  return grew;
}

fs::path OomWatch::best_counter_file(const fs::path& cgroup_file, const fs::path& mounted_at) {
  for (const auto& [controllers, path] : groups_in(cgroup_file)) {
    fs::path events;
    if (controllers.empty()) events = mounted_at.string() + path + "/memory.events";
    if (controllers == "memory") events = mounted_at.string() + "/memory" + path + "/memory.oom_control";
    if (!events.empty() && std::ifstream(events)) return events;
  }
  return "/proc/vmstat";
}

bool OomWatch::is_slurm_tasks(const fs::path& counter_file) {
  // slurm_node1/uid_0/job_7/step_0/task_1, of the second version job_7/step_0/user/task_1.
  bool of_step = false;
  for (const auto& part : counter_file) {
    const auto name = part.string();
    if (name.starts_with("step_")) of_step = true;
    if (of_step && name.starts_with("task_")) return true;
  }
  return false;
}

}  // namespace base
