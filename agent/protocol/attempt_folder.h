#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "agent/protocol/facts.h"
#include "agent/protocol/launch.h"
#include "base/fd.h"

namespace agent::protocol {

// The folder of one attempt. Others may keep files of their own there. Agents and musterd share:
//   launch.json           what to start; musterd writes it before the agents start
//   status.jsonl          the facts of the agent that has rank 0, one line each
//   status-<first>.jsonl  the facts of the agent whose first rank has this number
// and on musterd's own machine, where one agent has all ranks:
//   lock                  held (flock) by whoever starts the attempt, then by its agent until no rank is left
//   agent.log             the agent's stderr
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kAgentLog = "agent.log";

/// Throws std::system_error that names the folder.
base::Fd open_folder(const std::filesystem::path& folder);

/// Takes the attempt's lock; nothing if another open file holds it. The lock lasts as long as any copy of the
/// descriptor, copies of child processes included. Throws std::system_error when the lock cannot be asked for.
std::optional<base::Fd> try_lock(int folder);

/// launch.json; nothing if there is none. Throws std::runtime_error when it cannot be read or makes no sense.
std::optional<Launch> read_launch_in(int folder);

/// MUSTER_ATTEMPT_FOLDER of the attempt's ranks, as launch.json has it, also one that an earlier musterd has written;
/// empty: there is none. Throws std::runtime_error when the file cannot be read.
std::string attempt_mark_in(int folder);

/// The status file of an agent; nothing is known if there is none. Throws std::runtime_error when it cannot be read or
/// a whole line makes no sense: then nobody knows whether the ranks ran.
Status read_status(int folder, std::uint32_t first_rank = 0);

/// Throws std::system_error with errno and this text.
[[noreturn]] void throw_errno(const std::string& what);

}  // namespace agent::protocol
