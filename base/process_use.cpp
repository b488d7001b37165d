#include "base/process_use.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace base {
namespace {

constexpr int kLongestLine = 4096;

/// Pss of a process, in bytes. nullopt: the kernel does not tell it.
std::optional<std::int64_t> proportional_bytes(const std::filesystem::path& smaps_rollup) {
  std::ifstream lines(smaps_rollup);
  for (std::string name; lines >> name;) {
    std::int64_t kilobytes = 0;
    if (name == "Pss:") return lines >> kilobytes ? std::optional(kilobytes * 1024) : std::nullopt;
    lines.ignore(kLongestLine, '\n');
  }
  return std::nullopt;
}

}  // namespace

ProcessUseMeter::ProcessUseMeter(std::int64_t pid, std::filesystem::path proc) : pid_(pid), proc_(std::move(proc)) {}

std::vector<const ProcessStat*> ProcessUseMeter::members(const std::vector<ProcessStat>& all) const {
  std::map<std::int64_t, const ProcessStat*> by_pid;
  for (const auto& process : all) by_pid.emplace(process.pid, &process);
  std::map<std::int64_t, bool> known;  // whether it belongs here
  const auto is_own = [&](const ProcessStat& process) {
    return process.pid == pid_ || process.group == pid_ || seen_.contains({process.pid, process.start_time});
  };
  std::vector<const ProcessStat*> group;
  for (const auto& process : all) {
    std::vector<std::int64_t> path;
    bool belongs = false;
    // The list is of several moments, so it might name a process that is its own ancestor.
    for (auto at = by_pid.find(process.pid); at != by_pid.end(); at = by_pid.find(at->second->parent)) {
      if (const auto told = known.find(at->first); told != known.end()) {
        belongs = told->second;
        break;
      }
      path.push_back(at->first);
      known[at->first] = false;
      if ((belongs = is_own(*at->second))) break;
    }
    for (const auto pid : path) known[pid] = belongs;
    if (belongs) group.push_back(&process);
  }
  return group;
}

/// CPU time since the look before.
std::int64_t ProcessUseMeter::ticks_since(const Group& now) const {
  std::int64_t total = 0;
  std::map<std::int64_t, std::int64_t> waited;  // by process: time of the ended that came to it since
  for (const auto& [key, process] : now) {
    const auto before = seen_.find(key);
    const auto had = before == seen_.end() ? Seen{} : before->second;
    total += std::max<std::int64_t>(process.own_ticks - had.own_ticks, 0);
    waited[key.first] = std::max<std::int64_t>(process.waited_ticks - had.waited_ticks, 0);
  }
  std::map<std::int64_t, std::int64_t> parents;  // of those that have ended
  for (const auto& [key, process] : seen_) {
    if (!now.contains(key)) parents.emplace(key.first, process.parent);
  }
  // Whoever has ended was counted up to the look before. Its time came to its parent, or to the parent of that.
  for (const auto& [key, process] : seen_) {
    if (now.contains(key)) continue;
    auto heir = process.parent;
    for (std::size_t climbed = 0; !waited.contains(heir) && climbed < parents.size(); ++climbed) {
      const auto next = parents.find(heir);
      if (next == parents.end()) break;
      heir = next->second;
    }
    if (const auto gain = waited.find(heir); gain != waited.end()) {
      gain->second -= std::min(gain->second, process.own_ticks + process.waited_ticks);
    }
  }
  for (const auto& [_, gain] : waited) total += gain;
  return total;
}

void ProcessUseMeter::read_proportion(const ProcessStat& process, Seen& seen) const {
  const auto began = std::chrono::steady_clock::now();
  const auto bytes = proportional_bytes(proc_ / std::to_string(process.pid) / "smaps_rollup");
  const auto resident = static_cast<double>(process.resident_pages) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  seen.proportion = bytes ? std::min(1.0, static_cast<double>(*bytes) / resident) : 1;
  seen.pss_again += (std::chrono::steady_clock::now() - began) * kPssShare;
}

std::int64_t ProcessUseMeter::memory_of(const std::vector<const ProcessStat*>& group, Group& seen, Time now) const {
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  const auto alive = std::ranges::count_if(group, [](const auto* process) { return process->resident_pages > 0; });
  std::int64_t sum = 0;
  for (const auto* process : group) {
    auto& own = seen.at({process->pid, process->start_time});
    const auto resident = process->resident_pages * page;
    if (alive > 1 && resident > 0 && own.pss_again <= now) {
      own.pss_again = now;
      read_proportion(*process, own);
    }
    sum += alive > 1 ? static_cast<std::int64_t>(own.proportion * static_cast<double>(resident)) : resident;
  }
  return sum;
}

std::optional<ProcessUse> ProcessUseMeter::look(const std::vector<ProcessStat>& all, Time now) {
  const auto group = members(all);
  pids_.clear();
  Group seen;
  for (const auto* process : group) {
    const Key key{process->pid, process->start_time};
    const auto before = seen_.find(key);
    auto& own = seen[key] = before == seen_.end() ? Seen{} : before->second;
    own.parent = process->parent;
    own.own_ticks = process->cpu_ticks;
    own.waited_ticks = process->waited_ticks;
    pids_.push_back(process->pid);
  }
  ProcessUse use;
  use.processes = static_cast<std::uint32_t>(group.size());
  if (looked_at_ && now > *looked_at_) {
    const auto ticks = static_cast<double>(ticks_since(seen)) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    use.cores = ticks / std::chrono::duration<double>(now - *looked_at_).count();
  }
  use.memory_bytes = memory_of(group, seen, now);
  use.memory_peak_bytes = peak_ = std::max(peak_, use.memory_bytes);
  seen_ = std::move(seen);
  looked_at_ = now;
  if (group.empty()) return std::nullopt;
  return use;
}

}  // namespace base
