#include "runtime/local/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
extern "C" {  // glibc 2.36 forgot to say so in it
#include <sys/pidfd.h>
}

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "runtime/local/attempt_folder.h"
#include "runtime/whole_number.h"

namespace runtime::local {

ProcessStat parse_stat(std::string_view line) {
  const auto open = line.find('(');
  const auto close = line.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    throw std::runtime_error("/proc/<pid>/stat: no program name in \"" + std::string(line) + "\"");
  }
  ProcessStat stat;
  std::from_chars(line.data(), line.data() + open, stat.pid);
  std::istringstream rest{std::string(line.substr(close + 1))};
  rest >> stat.state >> stat.parent >> stat.group >> stat.session;  // fields 3 to 6
  std::string skipped;
  for (int field = 7; field <= 21; ++field) rest >> skipped;
  rest >> stat.start_time;  // field 22
  if (!rest) throw std::runtime_error("/proc/<pid>/stat: too few fields in \"" + std::string(line) + "\"");
  return stat;
}

std::optional<ProcessStat> read_stat(std::int64_t pid) {
  const auto path = "/proc/" + std::to_string(pid) + "/stat";
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT || errno == ESRCH) return std::nullopt;
    throw_errno("cannot open " + path);
  }
  std::array<char, 1024> buffer;
  ssize_t count;
  do {
    count = ::read(fd.get(), buffer.data(), buffer.size());
  } while (count < 0 && errno == EINTR);
  if (count == 0 || (count < 0 && errno == ESRCH)) return std::nullopt;
  if (count < 0) throw_errno("cannot read " + path);
  return parse_stat({buffer.data(), static_cast<std::size_t>(count)});
}

std::vector<ProcessStat> all_processes() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  if (!folder) throw_errno("cannot open /proc");
  std::vector<ProcessStat> all;
  while (const dirent* entry = ::readdir(folder.get())) {
    const auto pid = whole_number<std::int64_t>(entry->d_name);
    if (!pid) continue;
    if (const auto stat = read_stat(*pid)) all.push_back(*stat);
  }
  return all;
}

std::string boot_id() {
  const auto folder = open_folder("/proc/sys/kernel/random");
  auto id = read_file_at(folder.get(), "boot_id").value_or("");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

std::string node_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

void kill_exactly(const ProcessStat& process) {
  Fd handle(::pidfd_open(static_cast<pid_t>(process.pid), 0));
  if (!handle) return;
  const auto now = read_stat(process.pid);
  if (now && now->start_time == process.start_time) ::pidfd_send_signal(handle.get(), SIGKILL, nullptr, 0);
}

std::vector<ProcessStat> leftovers(const Started& started) {
  if (started.boot_id != boot_id()) return {};
  std::uint64_t began = UINT64_MAX;
  for (const auto& rank : started.ranks) began = std::min(began, rank.start_time);
  std::vector<ProcessStat> left;
  for (const auto& process : all_processes()) {
    if (process.is_dead()) continue;
    const bool is_rank = std::find(started.ranks.begin(), started.ranks.end(),
                                   RankProcess{process.pid, process.start_time}) != started.ranks.end();
    // A session's number is not given out again while one of its processes lives.
    const bool of_a_rank = process.session == started.session && process.start_time >= began &&
                           std::any_of(started.ranks.begin(), started.ranks.end(),
                                       [&](const auto& rank) { return process.group == rank.pid; });
    if (is_rank || of_a_rank) left.push_back(process);
  }
  return left;
}

bool any_alive(const Started& started) {
  if (started.boot_id != boot_id()) return false;
  return std::any_of(started.ranks.begin(), started.ranks.end(), [](const auto& rank) {
    const auto now = read_stat(rank.pid);
    return now && now->start_time == rank.start_time && !now->is_dead();
  });
}

std::optional<ProcessStat> supervisor_of(const Started& started) {
  if (started.boot_id != boot_id()) return std::nullopt;
  const auto leader = read_stat(started.session);
  if (!leader || leader->session != leader->pid || leader->is_dead()) return std::nullopt;
  const bool older = std::all_of(started.ranks.begin(), started.ranks.end(),
                                 [&](const auto& rank) { return leader->start_time <= rank.start_time; });
  return older ? leader : std::nullopt;
}

}  // namespace runtime::local
