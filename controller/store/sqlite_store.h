#pragma once

#include <filesystem>
#include <memory>

#include "store/store.h"

namespace store {

/// Opens the database `file`, creating it (mode 0600) if there is none, and brings its schema up to date.
///
/// The folder must exist. While it is open the process holds a lock on `<file>.lock`, whose content is its pid. Beside
/// the file SQLite keeps `<file>-wal` and `<file>-shm`: they belong to it, and a backup is `sqlite3 file .backup`.
///
/// Two connections: one for writes, one for reads, so that neither waits for the other. Thread-safe.
///
/// Reads the whole file once to check it (about a second a GiB). Throws Error: kInUse naming the pid; kCorrupt, kNewer
/// without having changed the file; kFull if nothing can be written there.
std::unique_ptr<Store> open_sqlite_store(const std::filesystem::path& file);

}  // namespace store
