#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "controller/store/sqlite_database.h"

namespace store {

// [Note: backups]
// A backup is one file: a compact copy of muster.db as of one moment, which SQLite makes while musterd goes on. In the
// copy, `meta` has a note under the key "backup". Metrics are most of the bytes and can be missed, so they come only if
// they are asked for, in a second file FILE.metrics.
//
// A restore takes the place of a data folder's databases. What was there stays beside them under another name. From the
// first change to the last, a mark says that the restore is under way. musterd does not start beside the mark, and a
// second restore finishes what the first one began.

/// Writes a compact copy of the database as of one moment in place of `file`, with mode 0600. Other connections may
/// write meanwhile. `finish` may change the copy before it is checked. The copy is whole and durable when this returns.
/// A crash leaves no file, or the one that was there, and perhaps `file` with the ending ".part". Throws Error, and
/// SQLite::Exception.
void copy_database(SQLite::Database& from, const std::filesystem::path& file,
                   const std::function<void(SQLite::Database&)>& finish = {});

/// migrate(). A database of an older schema is copied to `<file>.schema-<its version>` before, in place of an older
/// copy, so that the migration can be taken back. Throws Error, and nothing is migrated then.
void migrate_beside_copy(Database& database, const Migrations& migrations,
                         const std::function<void(const std::string&)>& tell);

/// The content of a backup.
struct BackupFacts {
  std::int64_t schema = 0;
  std::int64_t jobs = 0, open_jobs = 0;  // without removed ones
  std::string secret;
  std::string note;  // empty: the file is a plain copy of muster.db
  std::uintmax_t bytes = 0;
  std::uintmax_t metrics_bytes = 0;  // 0: there is no file of metrics
};

/// FILE.metrics beside a backup FILE.
std::filesystem::path metrics_of_backup(const std::filesystem::path& backup);

/// Writes a backup of the store whose database of jobs is `jobs_file`, whether a musterd of this machine has it open or
/// not. Throws Error: kOther if `backup` is there already, or there is no store; kFull; kCorrupt if a copy fails its
/// check, and then there is no backup.
BackupFacts write_backup(const std::filesystem::path& jobs_file, const std::filesystem::path& backup,
                         const std::string& note, bool with_metrics);

/// Checks all of a backup, or of a plain copy of muster.db. Throws Error: kCorrupt, kNewer, or kOther if there is none.
BackupFacts read_backup(const std::filesystem::path& backup);

/// Puts the backup in the place of the databases of `jobs_file`, as the user that owns the folder. `tell` is given
/// sentences about what was there. Without metrics in the backup, metrics.db stays if it is of the same store. Throws
/// Error: those of read_backup(), and kInUse if a musterd runs on the folder.
BackupFacts restore_backup(const std::filesystem::path& backup, const std::filesystem::path& jobs_file,
                           const std::function<void(const std::string&)>& tell);

/// Gives a file to the owner of its folder, if there is such a file and root is the one who asks: a root that restores
/// must not lock the service's user out. Throws Error.
void give_to_owner(const std::filesystem::path& file);

/// Throws Error if a restore of this database was begun and not finished.
void refuse_half_restored(const std::filesystem::path& jobs_file);

}  // namespace store
