#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace base {

/// One process as the kernel lists it.
struct ProcessStat {
  std::int64_t pid = 0;
  char state = '?';  // as in ps: R S D T t Z X ...
  std::int64_t parent = 0;
  std::int64_t group = 0;
  std::int64_t session = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot
  std::string name = {};         // of the program, at most 15 bytes
  std::uint64_t cpu_ticks = 0;   // processor time of its own

  bool is_dead() const { return state == 'Z' || state == 'X' || state == 'x'; }
  /// Not 't': whoever traces it (a debugger, LeakSanitizer at its end) lets it go on.
  bool is_stopped() const { return state == 'T'; }
};

/// Reads a line of /proc/<pid>/stat, or of a thread's file below /proc/<pid>/task; its program name may hold anything.
/// Throws std::runtime_error.
ProcessStat parse_stat(std::string_view line);

/// Nothing if there is no such process. Throws std::system_error when it cannot be asked.
std::optional<ProcessStat> read_stat(std::int64_t pid);

}  // namespace base
