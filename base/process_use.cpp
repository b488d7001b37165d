#include "base/process_use.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>

#include "base/fd.h"

namespace base {
namespace {

constexpr std::size_t kMostStat = 1024, kMostRollup = 4096;

/// At most `most` bytes of a file; nullopt: it cannot be read.
std::optional<std::string> read_some(const std::filesystem::path& path, std::size_t most) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string text(most, '\0');
  ssize_t count;
  do {
    count = ::read(file.get(), text.data(), text.size());
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(count));
  return text;
}

template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc();
}

}  // namespace

std::optional<ProcessLook> parse_look(std::string_view stat_line) {
  const auto open = stat_line.find('(');
  const auto close = stat_line.rfind(')');  // a program's name may hold anything
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  ProcessLook look;
  auto rest = stat_line;
  if (!take_number(rest, look.pid)) return std::nullopt;
  rest = stat_line.substr(close + 1);
  if (rest.size() < 3) return std::nullopt;
  const char state = rest[1];
  rest.remove_prefix(2);
  constexpr std::size_t kFirst = 4, kLast = 24;  // the fields' numbers in proc(5)
  std::array<std::int64_t, kLast + 1> fields{};
  for (auto field = kFirst; field <= kLast; ++field) {
    std::uint64_t number = 0;
    const auto before = rest;
    if (take_number(rest, fields[field])) continue;
    rest = before;  // some of them use all 64 bits
    if (!take_number(rest, number)) return std::nullopt;
    fields[field] = static_cast<std::int64_t>(number);
  }
  look.parent = fields[4];
  look.group = fields[5];
  look.own_ticks = fields[14] + fields[15];
  look.waited_ticks = fields[16] + fields[17];
  look.start_time = static_cast<std::uint64_t>(fields[22]);
  look.resident_pages = state == 'Z' || state == 'X' ? 0 : fields[24];
  return look;
}

std::optional<std::int64_t> parse_proportional(std::string_view smaps_rollup) {
  constexpr std::string_view kName = "\nPss:";
  const auto found = smaps_rollup.find(kName);
  if (found == std::string_view::npos) return std::nullopt;
  auto rest = smaps_rollup.substr(found + kName.size());
  std::int64_t kilobytes = 0;
  if (!take_number(rest, kilobytes)) return std::nullopt;
  return kilobytes * 1024;
}

std::vector<ProcessLook> look_at_processes(const std::filesystem::path& proc) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(proc.c_str()), &::closedir);
  if (!folder) throw std::system_error(errno, std::generic_category(), "cannot open " + proc.string());
  std::vector<ProcessLook> all;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name.empty() || name.find_first_not_of("0123456789") != std::string_view::npos) continue;
    const auto line = read_some(proc / name / "stat", kMostStat);
    const auto look = line ? parse_look(*line) : std::nullopt;
    if (look) all.push_back(*look);
  }
  return all;
}

ProcessUseMeter::ProcessUseMeter(std::int64_t pid, std::filesystem::path proc) : pid_(pid), proc_(std::move(proc)) {}

std::vector<const ProcessLook*> ProcessUseMeter::members(const std::vector<ProcessLook>& all) const {
  std::map<std::int64_t, const ProcessLook*> by_pid;
  for (const auto& process : all) by_pid.emplace(process.pid, &process);
  std::map<std::int64_t, bool> known;  // whether it belongs here
  const auto is_own = [&](const ProcessLook& process) {
    return process.pid == pid_ || process.group == pid_ || seen_.contains({process.pid, process.start_time});
  };
  std::vector<const ProcessLook*> group;
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

void ProcessUseMeter::read_proportion(const ProcessLook& process, Seen& seen) const {
  const auto began = std::chrono::steady_clock::now();
  const auto text = read_some(proc_ / std::to_string(process.pid) / "smaps_rollup", kMostRollup);
  const auto bytes = text ? parse_proportional(*text) : std::nullopt;
  const auto resident = static_cast<double>(process.resident_pages) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  seen.proportion = bytes ? std::min(1.0, static_cast<double>(*bytes) / resident) : 1;
  seen.pss_again += (std::chrono::steady_clock::now() - began) * kPssShare;
}

std::int64_t ProcessUseMeter::memory_of(const std::vector<const ProcessLook*>& group, Group& seen, Time now) const {
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

std::optional<ProcessUse> ProcessUseMeter::look(const std::vector<ProcessLook>& all, Time now) {
  const auto group = members(all);
  pids_.clear();
  Group seen;
  for (const auto* process : group) {
    const Key key{process->pid, process->start_time};
    const auto before = seen_.find(key);
    auto& own = seen[key] = before == seen_.end() ? Seen{} : before->second;
    own.parent = process->parent;
    own.own_ticks = process->own_ticks;
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
