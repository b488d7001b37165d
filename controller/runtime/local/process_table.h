#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/local/status_log.h"

namespace runtime::local {

/// One process as the kernel lists it.
struct ProcessStat {
  std::int64_t pid = 0;
  char state = '?';  // as in ps: R S D T t Z X ...
  std::int64_t parent = 0;
  std::int64_t group = 0;
  std::int64_t session = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot

  bool is_dead() const { return state == 'Z' || state == 'X' || state == 'x'; }
  /// Not 't': whoever traces it (a debugger, LeakSanitizer at its end) lets it go on.
  bool is_stopped() const { return state == 'T'; }
};

/// Reads a /proc/<pid>/stat line; its program name may hold anything. Throws std::runtime_error.
ProcessStat parse_stat(std::string_view line);

/// Nothing if there is no such process. Throws std::system_error when it cannot be asked.
std::optional<ProcessStat> read_stat(std::int64_t pid);
std::vector<ProcessStat> all_processes();

/// Changes with every boot of the machine.
std::string boot_id();
/// This machine's host name.
std::string node_name();

/// SIGKILL for this very process, never for a later one with its id.
void kill_exactly(const ProcessStat& process);

/// What is left of an attempt whose supervisor is gone: its ranks and whatever shares their session, dead ones not
/// counted. Empty after a reboot.
std::vector<ProcessStat> leftovers(const Started& started);

/// Whether any rank itself (not what it started) still runs.
bool any_alive(const Started& started);

/// The attempt's supervisor, if it is still there: the leader of the ranks' session, older than every rank.
std::optional<ProcessStat> supervisor_of(const Started& started);

}  // namespace runtime::local
