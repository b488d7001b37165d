#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/process_stat.h"

namespace agent::stacks {

/// Processes of one rank beyond this are left out.
inline constexpr std::size_t kMostProcesses = 64;

/// The process and all that descend from it in `all`, those nearest to it first. The dead are left out.
std::vector<base::ProcessStat> with_descendants(pid_t pid, const std::vector<base::ProcessStat>& all);

/// The first bytes of a file below /proc; empty: it can't be read.
std::string read_proc(const std::filesystem::path& path, std::size_t most);

/// The command line in one line of at most 200 bytes; the program's name of a process without one.
std::string command_of(pid_t pid);

/// Whether a Python interpreter runs in the process.
bool is_python(pid_t pid);

/// The file in memory into which the process writes its stack (agent/protocol/stacks.h), as a path below /proc.
/// nullopt: the process has none of its own, or no handler for the signal.
std::optional<std::string> stack_memory(pid_t pid);

/// The thread of the process that answers (agent/protocol/stacks.h). nullopt: it has none.
std::optional<pid_t> stack_thread(pid_t pid);

}  // namespace agent::stacks
