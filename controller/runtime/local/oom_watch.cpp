#include "runtime/local/oom_watch.h"

#include <fstream>
#include <string>

namespace runtime::local {

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
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    const auto events = "/sys/fs/cgroup" + line.substr(3) + "/memory.events";
    if (std::ifstream(events)) return events;
  }
  return "/proc/vmstat";
}

}  // namespace runtime::local
