#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "agent/protocol/launch.h"
#include "agent/protocol/supervisor_words.h"
#include "base/fd.h"

namespace agent::supervisor {

// The folder of one local attempt. Others may keep files of their own there. Supervisor and local executor share:
//   launch.json       what to start; the executor writes it before the supervisor starts
//   lock              held (flock) by whoever starts the attempt, then by its supervisor for its whole life
//   status.jsonl      every fact of the supervisor, one line each
//   supervisor.sock   where the supervisor tells facts and takes commands
//   supervisor.log    the supervisor's stderr
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kSocketFile = "supervisor.sock";
inline constexpr const char* kSupervisorLog = "supervisor.log";

/// Throws std::system_error that names the folder.
base::Fd open_folder(const std::filesystem::path& folder);

/// Takes the attempt's lock; nothing if another open file holds it. The lock lasts as long as any copy of the
/// descriptor, copies of child processes included. Throws std::system_error when the lock cannot be asked for.
std::optional<base::Fd> try_lock(int folder);

/// The whole file; nothing if there is none. Throws std::system_error when the file cannot be read, std::runtime_error
/// when it is absurdly large.
std::optional<std::string> read_file_at(int folder, const char* name);

/// launch.json; nothing if there is none. Throws std::runtime_error when it cannot be read or makes no sense.
std::optional<protocol::LocalLaunch> read_local_launch(int folder);

/// status.jsonl; nothing is known if there is none. Throws std::runtime_error when it cannot be read or a whole line
/// makes no sense: then nobody knows whether the attempt ran.
protocol::Status read_status(int folder);

/// Throws std::system_error with errno and this text.
[[noreturn]] void throw_errno(const std::string& what);

// A unix socket's path is limited to 107 bytes, an attempt's folder is not: both ends go through
// /proc/self/fd/<folder>.

/// Listens on the folder's supervisor.sock, non-blocking, for this user alone; replaces a stale one. Throws
/// std::system_error.
base::Fd listen_in(int folder);

/// Connects to the folder's supervisor.sock, non-blocking. No descriptor (errno says why) if nobody listens.
base::Fd connect_in(int folder);

}  // namespace agent::supervisor
