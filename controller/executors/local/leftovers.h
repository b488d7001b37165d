#pragma once

#include <optional>
#include <vector>

#include "contract/supervisor_facts.h"
#include "os/process_stat.h"

namespace executors::local {

/// What is left of an attempt whose supervisor is gone: its ranks and whatever shares their session, dead ones not
/// counted. Empty after a reboot.
std::vector<os::ProcessStat> leftovers(const contract::Started& started);

/// Whether any rank itself (not what it started) still runs.
bool any_alive(const contract::Started& started);

/// The attempt's supervisor, if it is still there: the leader of the ranks' session, older than every rank.
std::optional<os::ProcessStat> supervisor_of(const contract::Started& started);

}  // namespace executors::local
