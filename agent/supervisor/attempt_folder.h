#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/types.h"
#include "os/fd.h"

namespace runtime::local {

// One attempt's folder. Others may keep files of their own there; these are the local executor's:
//   launch.json       what to start; written by the executor before the supervisor
//   lock              held (flock) by whoever starts the attempt, then by its supervisor for its whole life
//   status.jsonl      every fact, one line each, on disk before it is told
//   supervisor.sock   where the supervisor tells facts and takes commands
//   supervisor.log    its stderr
inline constexpr const char* kLaunchFile = "launch.json";
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kStatusFile = "status.jsonl";
inline constexpr const char* kSocketFile = "supervisor.sock";
inline constexpr const char* kSupervisorLog = "supervisor.log";

/// <root>/jobs/<job>/attempt-<n>
std::filesystem::path attempt_folder(const std::filesystem::path& root, const core::AttemptKey& key);

/// Throws std::system_error that names the folder.
Fd open_folder(const std::filesystem::path& folder);

/// Takes the attempt's lock; nothing if another open file holds it. It goes with the last copy of the descriptor, those
/// of child processes included. Throws std::system_error when it cannot be asked.
std::optional<Fd> try_lock(int folder);

/// The whole file; nothing if there is none. Throws std::system_error when it cannot be read, std::runtime_error when
/// it is absurdly large.
std::optional<std::string> read_file_at(int folder, const char* name);

/// Replaces a file such that after a crash either the old or the new text is there, whole. Mode 0600. Throws
/// std::system_error.
void replace_file_at(int folder, const char* name, const std::string& text);

/// Throws std::system_error with errno and this text.
[[noreturn]] void throw_errno(const std::string& what);

}  // namespace runtime::local
