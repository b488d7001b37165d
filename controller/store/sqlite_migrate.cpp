#include "store/sqlite_migrate.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <array>
#include <fstream>

#include "store/sqlite_errors.h"

namespace store {

namespace {
/// "mstr": marks a database as muster's.
constexpr std::int64_t kApplicationId = 0x6d737472;
}  // namespace

void check_header(const std::string& file) {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  std::array<char, kMagic.size()> begin{};
  std::ifstream stream(file, std::ios::binary);
  stream.read(begin.data(), begin.size());
  const auto length = static_cast<std::size_t>(stream.gcount());
  if (length != 0 && std::string_view(begin.data(), length) != kMagic) throw corrupt(file, "it is no SQLite database");
}

std::int64_t stored_version(SQLite::Database& database) {
  return database.execAndGet("PRAGMA user_version").getInt64();
}

void check_database(SQLite::Database& database, const std::string& file, std::size_t newest_version, bool is_known) {
  const std::int64_t version = stored_version(database);
  const std::int64_t owner = database.execAndGet("PRAGMA application_id").getInt64();
  const bool is_new =
      version == 0 && owner == 0 && database.execAndGet("SELECT count(*) FROM sqlite_schema").getInt() == 0;
  if (is_new) return;
  if (owner != kApplicationId) throw corrupt(file, "it is a database of another program");
  if (version > static_cast<std::int64_t>(newest_version)) {
    throw Error(Error::Kind::kNewer, file + " has schema version " + std::to_string(version) +
                                         ", but this muster knows only up to " + std::to_string(newest_version) +
                                         ": use the newer muster that wrote it");
  }
  if (is_known) return;
  const std::string verdict = database.execAndGet("PRAGMA quick_check(1)").getString();
  if (verdict != "ok") throw corrupt(file, verdict);
}

void migrate(SQLite::Database& database, std::span<const std::string_view> migrations) {
  for (auto version = static_cast<std::size_t>(stored_version(database)); version < migrations.size(); ++version) {
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    database.exec(std::string(migrations[version]));
    database.exec("PRAGMA application_id = " + std::to_string(kApplicationId));
    database.exec("PRAGMA user_version = " + std::to_string(version + 1));
    transaction.commit();
  }
}

}  // namespace store
