#pragma once

#include <filesystem>
#include <memory>

#include "store/store.h"

namespace store {

/// Opens the database `file` and brings its schema up to date. Creates the file (mode 0600) if there is none. The
/// folder must exist.
///
/// While the store is open, the process holds a lock on `<file>.lock`, which contains its pid. `<file>-wal` and
/// `<file>-shm` are part of the database, so make a backup with `sqlite3 file .backup`.
///
/// The store uses one connection for writes and one for reads, so that neither waits for the other. Thread-safe.
///
/// After an unclean end the whole file is checked first, which takes about a second for each GiB. Throws Error: kInUse
/// with the other process's pid; kCorrupt or kNewer, and the file is unchanged; kFull if the folder cannot be written.
std::unique_ptr<Store> open_sqlite_store(const std::filesystem::path& file);

}  // namespace store
