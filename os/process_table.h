#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/process_stat.h"

namespace os {

/// Throws std::system_error when the kernel cannot be asked.
std::vector<ProcessStat> all_processes();

/// The value of a variable in the environment with which the process was started. A forked child has its parent's.
/// nullopt: it has no such variable, is gone, or its environment is not ours to read.
std::optional<std::string> variable_of_process(std::int64_t pid, std::string_view name);

/// Changes with every boot of the machine. Throws std::system_error when it cannot be read.
std::string boot_id();

/// SIGKILL for this very process, never for a later one with its id.
void kill_exactly(const ProcessStat& process);

}  // namespace os
