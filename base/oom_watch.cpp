#include "base/oom_watch.h"

#include <fstream>
#include <string>

namespace base {

OomWatch::OomWatch(std::filesystem::path counter_file, Time now)
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

std::filesystem::path OomWatch::best_counter_file() {
  return counter_file_of("/proc/self/cgroup", "/sys/fs/cgroup");
}

std::filesystem::path OomWatch::counter_file_of(const std::filesystem::path& cgroup_file,
                                                const std::filesystem::path& mounted_at) {
  std::ifstream groups(cgroup_file);
  // "<number>:<controllers>:<path>", of the second version "0::<path>".
  for (std::string line; std::getline(groups, line);) {
    const auto colon = line.find(':'), second = line.find(':', colon + 1);
    if (second == std::string::npos) continue;
    const auto controllers = line.substr(colon + 1, second - colon - 1), path = line.substr(second + 1);
    std::filesystem::path events;
    if (controllers.empty()) events = mounted_at.string() + path + "/memory.events";
    if (controllers == "memory") events = mounted_at.string() + "/memory" + path + "/memory.oom_control";
    if (!events.empty() && std::ifstream(events)) return events;
  }
  return "/proc/vmstat";
}

bool OomWatch::is_slurm_tasks(const std::filesystem::path& counter_file) {
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
