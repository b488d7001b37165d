#include "executors/local/leftovers.h"

#include <algorithm>

#include "os/process_table.h"

namespace executors::local {

using contract::RankProcess;
using contract::Started;

std::vector<os::ProcessStat> leftovers(const Started& started) {
  if (started.boot_id != os::boot_id()) return {};
  std::uint64_t began = UINT64_MAX;
  for (const auto& rank : started.ranks) began = std::min(began, rank.start_time);
  std::vector<os::ProcessStat> left;
  for (const auto& process : os::all_processes()) {
    if (process.is_dead()) continue;
    const bool is_rank =
        std::ranges::find(started.ranks, RankProcess{process.pid, process.start_time}) != started.ranks.end();
    // A session's number is not given out again while one of its processes lives.
    const bool of_a_rank = process.session == started.session && process.start_time >= began &&
                           std::ranges::find(started.ranks, process.group, &RankProcess::pid) != started.ranks.end();
    if (is_rank || of_a_rank) left.push_back(process);
  }
  return left;
}

bool any_alive(const Started& started) {
  if (started.boot_id != os::boot_id()) return false;
  return std::ranges::any_of(started.ranks, [](const auto& rank) {
    const auto now = os::read_stat(rank.pid);
    return now && now->start_time == rank.start_time && !now->is_dead();
  });
}

std::optional<os::ProcessStat> supervisor_of(const Started& started) {
  if (started.boot_id != os::boot_id()) return std::nullopt;
  const auto leader = os::read_stat(started.session);
  if (!leader || leader->session != leader->pid || leader->is_dead()) return std::nullopt;
  const bool older =
      std::ranges::all_of(started.ranks, [&](const auto& rank) { return leader->start_time <= rank.start_time; });
  return older ? leader : std::nullopt;
}

}  // namespace executors::local
