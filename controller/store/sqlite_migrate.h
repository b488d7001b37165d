#pragma once

#include <SQLiteCpp/Database.h>

#include <span>
#include <string>
#include <string_view>

namespace store {

/// Looks at the first bytes only: SQLite itself takes a very short file of garbage for an empty database. Throws Error
/// kCorrupt; a file that is empty or not there is fine.
void check_header(const std::string& file);

/// Looks whether this is a database of muster, or a new one, that this version can work with, and unless it `is_known`
/// to be sound reads all of it (seconds for each gigabyte). Changes nothing. Throws Error: kCorrupt or kNewer;
/// SQLite::Exception if the file cannot be read.
void check_database(SQLite::Database& database, const std::string& file, std::size_t newest_version, bool is_known);

/// Brings the schema to the newest version. Each migration is one transaction with its version number, so that a crash
/// leaves the version before or after it.
void migrate(SQLite::Database& database, std::span<const std::string_view> migrations);

/// The schema version that is stored in the database.
std::int64_t stored_version(SQLite::Database& database);

}  // namespace store
