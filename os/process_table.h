#pragma once

#include <string>
#include <vector>

#include "os/process_stat.h"

namespace os {

/// Throws std::system_error when the kernel cannot be asked.
std::vector<ProcessStat> all_processes();

/// Changes with every boot of the machine. Throws std::system_error when it cannot be read.
std::string boot_id();

/// SIGKILL for this very process, never for a later one with its id.
void kill_exactly(const ProcessStat& process);

}  // namespace os
