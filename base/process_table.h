#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace base {

/// One process as the kernel lists it.
struct ProcessStat {
  std::int64_t pid = 0;
  char state = '?';  // as in ps: R S D T t Z X ...
  std::int64_t parent = 0;
  std::int64_t group = 0;
  std::int64_t session = 0;
  std::uint64_t start_time = 0;   // clock ticks since boot
  std::string name = {};          // of the program, at most 15 bytes
  std::int64_t cpu_ticks = 0;     // CPU time of all its threads; in a thread's file its own
  std::int64_t waited_ticks = 0;  // CPU time of its children that have ended and that it has waited for, and of theirs
  std::int64_t resident_pages = 0;

  bool is_dead() const { return state == 'Z' || state == 'X' || state == 'x'; }
  /// Not 't': whoever traces it (a debugger, LeakSanitizer at its end) lets it go on.
  bool is_stopped() const { return state == 'T'; }
};

/// Reads a line of /proc/<pid>/stat, or of a thread's file below /proc/<pid>/task; its program name may hold anything.
/// Throws std::runtime_error.
ProcessStat parse_stat(std::string_view line);

/// Nothing if there is no such process. Throws std::system_error when it cannot be asked.
std::optional<ProcessStat> read_stat(std::int64_t pid);

/// How often the kernel has taken the processor from the first thread of a process, or the thread has given it up: a
/// thread that does anything at all makes this number grow. nullopt: it cannot be told, or there is no such process.
std::optional<std::uint64_t> context_switches(std::int64_t pid);

/// This process's resident memory in bytes: now, and its peak.
struct ProcessMemory {
  std::int64_t resident_bytes = 0;
  std::int64_t peak_bytes = 0;
};

/// Zeros where the system does not report it.
ProcessMemory process_memory();

/// Every process below `proc`, in one pass. A process that ends meanwhile is left out, and so is one that the kernel
/// hides (hidepid=1). Throws std::system_error when the kernel cannot be asked, and unless `skips_nonsense`
/// std::runtime_error for a line that makes no sense.
std::vector<ProcessStat> all_processes(const std::filesystem::path& proc = "/proc", bool skips_nonsense = false);

/// The value of a variable in the environment with which the process was started. A forked child has its parent's.
/// nullopt: it has no such variable, is gone, or its environment is not ours to read.
std::optional<std::string> variable_of_process(std::int64_t pid, std::string_view name);

/// The files that the process writes its output to (descriptors 1 and 2), as the kernel names them now. Unlike its
/// environment a process that renames itself does not lose them. Empty: it has none, or they are not ours to see.
std::vector<std::string> outputs_of_process(std::int64_t pid);

/// The path as outputs_of_process() names it, through whatever links it leads; as it is written where that cannot be
/// told.
std::string real_path(const std::string& path);

/// Adds to `found` those of `others` that processes in it have started, as far as that is to be seen: their children,
/// members of sessions that they lead, and theirs. Takes them from `others`.
void add_started_by(std::vector<ProcessStat>& found, std::vector<ProcessStat>& others);

/// The status of a process, as /proc has it.
struct ProcessStatus {
  std::string own_pid;       // the number that it has for itself, which differs in a container
  std::uint64_t caught = 0;  // the signals that it has handlers for: bit n - 1 for signal n

  bool catches(int signal) const { return ((caught >> (signal - 1)) & 1) != 0; }
};
/// A process that is gone has no handlers, and its number.
ProcessStatus process_status(std::int64_t pid);

/// Changes with every boot of the machine. Throws std::system_error when it cannot be read.
std::string boot_id();

/// This signal for this very process, never for a later one with its id. False: it is gone, or is not ours.
bool signal_exactly(const ProcessStat& process, int signal);
/// signal_exactly() with SIGKILL.
void kill_exactly(const ProcessStat& process);

}  // namespace base
