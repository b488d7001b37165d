#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/supervisor/status_log.h"
#include "os/process_stat.h"

namespace runtime::local {

/// Throws std::system_error when the kernel cannot be asked.
std::vector<os::ProcessStat> all_processes();

/// Changes with every boot of the machine.
std::string boot_id();
/// This machine's host name.
std::string node_name();

/// SIGKILL for this very process, never for a later one with its id.
void kill_exactly(const os::ProcessStat& process);

/// What is left of an attempt whose supervisor is gone: its ranks and whatever shares their session, dead ones not
/// counted. Empty after a reboot.
std::vector<os::ProcessStat> leftovers(const Started& started);

/// Whether any rank itself (not what it started) still runs.
bool any_alive(const Started& started);

/// The attempt's supervisor, if it is still there: the leader of the ranks' session, older than every rank.
std::optional<os::ProcessStat> supervisor_of(const Started& started);

}  // namespace runtime::local
