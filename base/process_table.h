#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process_stat.h"

namespace base {

/// Throws std::system_error when the kernel cannot be asked.
std::vector<ProcessStat> all_processes();

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

/// Changes with every boot of the machine. Throws std::system_error when it cannot be read.
std::string boot_id();

/// SIGKILL for this very process, never for a later one with its id.
void kill_exactly(const ProcessStat& process);

}  // namespace base
