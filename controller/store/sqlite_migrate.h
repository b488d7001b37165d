#pragma once

#include <SQLiteCpp/Database.h>

#include <span>
#include <string>
#include <string_view>

namespace store {

/// Checks that the file begins as a SQLite database does. SQLite itself takes a very short file of garbage for an empty
/// database. An empty or missing file passes. Throws Error kCorrupt.
void check_header(const std::string& file);

/// Checks that the database is new or belongs to a muster not newer than this one. Unless the database `is_known` to be
/// sound, reads all of it, which takes about a second for each GiB. Changes nothing. Throws Error kCorrupt or kNewer,
/// and SQLite::Exception if the file cannot be read.
void check_database(SQLite::Database& database, const std::string& file, std::size_t newest_version, bool is_known);

/// Brings the schema to the newest version. Each migration and its version number are one transaction, so that a crash
/// leaves a complete version.
void migrate(SQLite::Database& database, std::span<const std::string_view> migrations);

/// The schema version of the database.
std::int64_t stored_version(SQLite::Database& database);

}  // namespace store
