#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "controller/store/store.h"

namespace store {

struct SqliteOptions {
  /// The clock by which metrics age.
  std::function<core::Time()> now = [] { return std::chrono::floor<core::Millis>(std::chrono::system_clock::now()); };
  /// Is given sentences about what people should know: what an opening has moved or removed, and what was left out.
  std::function<void(const std::string&)> tell = [](const std::string&) {};
};

/// Opens the database `file` and metrics.db beside it, and brings their schemas up to date. Creates each file (mode
/// 0600) if there is none. The folder must exist. See [Note: two databases] in sqlite_pair.h.
///
/// While the store is open, the process holds a lock on `<file>.lock`, which contains its pid, and on both databases.
/// `-wal` and `-shm` are part of a database, so a plain copy of a file is no backup: see sqlite_backup.h.
///
/// Each database has a connection for writes and others for reads, so that none waits for another. Curves have a reader
/// of their own. Thread-safe.
///
/// After an unclean end the whole files are checked first, which takes about a second for each GiB. Throws Error:
/// kInUse with the other process's pid; kCorrupt or kNewer, and the file is unchanged; kFull if the folder cannot be
/// written; kOther if metrics.db belongs to another store.
std::unique_ptr<Store> open_sqlite_store(const std::filesystem::path& file, SqliteOptions options = {});

}  // namespace store
