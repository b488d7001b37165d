#pragma once

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "controller/store/store.h"

namespace store {

// The file of a SQLite store: its lock, its checks, its schema, the mark of its clean end, and its errors.

/// An exclusive lock on a file, valid for the whole machine. The file holds the owner's pid. The kernel frees the lock
/// when the process ends, even by kill -9; the file stays.
class FileLock {
 public:
  /// Throws Error: kInUse with `what` and the owner's pid; kFull if the folder cannot be written; kOther if there is no
  /// such folder.
  FileLock(const std::filesystem::path& file, const std::filesystem::path& what);

 private:
  base::Fd lock_;
};

/// An exclusive lock on a database file itself, so that a lock file that was moved away or removed lets no second
/// musterd write. It is a lock of an open file description on one byte beyond all that SQLite locks and writes, so it
/// is nothing to SQLite, and no close() of another descriptor lets go of it. Of a file system without such locks
/// nothing is asked.
class DatabaseLock {
 public:
  /// Creates the file with mode 0600, since it holds the secret. SQLite would let others read it. Throws Error: kInUse,
  /// or kFull if the file cannot be written.
  explicit DatabaseLock(const std::filesystem::path& file);

 private:
  base::Fd lock_;
};

/// Remembers that a database was closed cleanly, so that the next start need not check the whole file.
///
/// The mark is the file `<database>.clean`. It holds the size, inode and modification time of the closed database. Any
/// later change of the database makes the mark invalid.
class CleanEnd {
 public:
  explicit CleanEnd(std::filesystem::path database);
  /// Writes the mark if begin() was called, doubt() was not, and the database has no log file left. Destroy this object
  /// after the database is closed.
  ~CleanEnd();
  CleanEnd(const CleanEnd&) = delete;
  CleanEnd& operator=(const CleanEnd&) = delete;

  /// True if the mark is valid: nothing has changed the database since it was closed cleanly.
  bool is_known() const;
  /// Deletes the mark. Call it before the first write.
  void begin();
  /// Call it when the database was found damaged. No mark is written then.
  void doubt() { doubted_ = true; }

 private:
  std::filesystem::path database_, mark_;
  bool begun_ = false, doubted_ = false;
};

/// Checks that the file begins as a SQLite database does. SQLite itself takes a very short file of garbage for an empty
/// database. An empty or missing file passes. Throws Error kCorrupt.
void check_header(const std::string& file);

/// The schema of a database: the whole of version `first`, then what brings each version to the next one.
///
/// [Note: schemas of neighbouring versions]
/// A muster can be rolled back by one version. So a migration adds tables and columns, and columns that it adds are
/// null or have a default, because the muster before it writes rows without them. Each migration says in `meta`, under
/// the key min_reader, which schema version a muster must know to work with the database. A muster opens a database of
/// a newer schema if it knows min_reader. A migration that changes what is there, or a new kind of event or action, has
/// a min_reader of its own version. Before muster.db is migrated a copy is made beside it, see migrate_beside_copy().
struct Migrations {
  std::size_t first;
  std::span<const std::string_view> sql;
  std::size_t newest() const { return first + sql.size() - 1; }
};

/// The key of min_reader in the table meta of a database.
inline constexpr const char* kMinReader = "min_reader";

/// Checks that the database is new, or has a version that `known` has or a newer one that it can work with. Unless the
/// database `is_known` to be sound, reads all of it, which takes about a second for each GiB. Changes nothing. Throws
/// Error kCorrupt or kNewer, and SQLite::Exception if the file cannot be read.
void check_database(SQLite::Database& database, const std::string& file, const Migrations& known, bool is_known);

/// The schema of the database of jobs, and of that of metrics.
Migrations migrations();
Migrations metrics_migrations();
/// Brings the schema of a database that was checked to the newest version. Each migration and its version number are
/// one transaction, so that a crash leaves a complete version.
void migrate(SQLite::Database& database, const Migrations& migrations);

/// The schema version of the database.
std::int64_t stored_version(SQLite::Database& database);

/// Turns an error of SQLite about the database `file` into a message with a remedy. `system_error` is the errno that
/// SQLite saw; 0: unknown.
Error translate(const SQLite::Exception& error, int system_error, const std::string& file);

}  // namespace store
