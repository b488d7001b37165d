#include "agent/supervisor/process_table.h"

#include <dirent.h>
#include <signal.h>
extern "C" {  // glibc 2.36 forgot to say so in it
#include <sys/pidfd.h>
}

#include <algorithm>
#include <memory>

#include "base/whole_number.h"
#include "agent/supervisor/attempt_folder.h"
#include "os/host_name.h"

namespace runtime::local {

std::vector<os::ProcessStat> all_processes() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  if (!folder) throw_errno("cannot open /proc");
  std::vector<os::ProcessStat> all;
  while (const dirent* entry = ::readdir(folder.get())) {
    const auto pid = whole_number<std::int64_t>(entry->d_name);
    if (!pid) continue;
    if (const auto stat = os::read_stat(*pid)) all.push_back(*stat);
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
  const auto name = os::host_name();
  return name.empty() ? "localhost" : name;
}

void kill_exactly(const os::ProcessStat& process) {
  Fd handle(::pidfd_open(static_cast<pid_t>(process.pid), 0));
  if (!handle) return;
  const auto now = os::read_stat(process.pid);
  if (now && now->start_time == process.start_time) ::pidfd_send_signal(handle.get(), SIGKILL, nullptr, 0);
}

std::vector<os::ProcessStat> leftovers(const Started& started) {
  if (started.boot_id != boot_id()) return {};
  std::uint64_t began = UINT64_MAX;
  for (const auto& rank : started.ranks) began = std::min(began, rank.start_time);
  std::vector<os::ProcessStat> left;
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
    const auto now = os::read_stat(rank.pid);
    return now && now->start_time == rank.start_time && !now->is_dead();
  });
}

std::optional<os::ProcessStat> supervisor_of(const Started& started) {
  if (started.boot_id != boot_id()) return std::nullopt;
  const auto leader = os::read_stat(started.session);
  if (!leader || leader->session != leader->pid || leader->is_dead()) return std::nullopt;
  const bool older = std::all_of(started.ranks.begin(), started.ranks.end(),
                                 [&](const auto& rank) { return leader->start_time <= rank.start_time; });
  return older ? leader : std::nullopt;
}

}  // namespace runtime::local
