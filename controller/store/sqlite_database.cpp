#include "controller/store/sqlite_database.h"

#include <sqlite3.h>

#include <cerrno>

namespace store {
namespace {
/// A call waits only if another program, such as sqlite3, holds the database.
constexpr int kBusyTimeoutMs = 5000;
}  // namespace

Query::~Query() {
  statement_.tryReset();
  statement_.clearBindings();
}

Connection::Connection(const std::string& file)
    : database_(file, SQLite::OPEN_READWRITE | SQLite::OPEN_NOMUTEX, kBusyTimeoutMs) {
  sqlite3_db_config(database_.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

void Connection::tidy_on_close() {
  sqlite3_db_config(database_.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
}

int Connection::system_error() const {
  return sqlite3_system_errno(database_.getHandle());
}

namespace {

/// The size to which SQLite truncates the log file after writing it back into the database.
constexpr const char* kWalKeptBytes = "67108864";

}  // namespace

Database::Database(const std::filesystem::path& file)
    : file_(file.string()), lock_(file), end_(file), writer_(connect()) {}

Connection Database::connect() {
  check_header(file_);
  try {
    return Connection(file_);
  } catch (const SQLite::Exception& error) {
    throw store::translate(error, errno, file_);
  }
}

void Database::check(const Migrations& known) {
  translating(writer_, [&] { check_database(writer_.database(), file_, known, end_.is_known()); });
}

void Database::begin(bool gives_back) {
  translating(writer_, [&] {
    auto& database = writer_.database();
    end_.begin();
    // Only before the first table.
    if (gives_back) database.exec("PRAGMA auto_vacuum = INCREMENTAL");
    if (database.execAndGet("PRAGMA journal_mode = WAL").getString() != "wal") {
      throw Error(Error::Kind::kOther,
                  file_ + ": its file system cannot hold a write-ahead log; use a data folder on a local disk");
    }
    database.exec("PRAGMA synchronous = FULL");
    database.exec("PRAGMA foreign_keys = ON");
    database.exec(std::string("PRAGMA journal_size_limit = ") + kWalKeptBytes);
  });
}

void Database::open_readers(std::size_t count) {
  writer_.tidy_on_close();
  while (readers_.size() < count) {
    readers_.push_back(std::make_unique<Reader>(file_));
    auto& connection = readers_.back()->connection;
    translating(connection, [&] { connection.database().exec("PRAGMA query_only = ON"); });
  }
}

Error Database::named(const Error& error) const {
  const bool names_file = std::string_view(error.what()).find(file_) != std::string_view::npos;
  const bool about_file = error.kind() == Error::Kind::kCorrupt || error.kind() == Error::Kind::kNewer;
  return names_file || !about_file ? error : Error(error.kind(), file_ + ": " + error.what());
}

const Error& Database::noted(const Error& error) {
  if (error.kind() == Error::Kind::kCorrupt) end_.doubt();
  return error;
}

Error Database::stands_still() const {
  return {Error::Kind::kOther,
          file_ + " could not be read for " + std::to_string(kReadPatience.count()) +
              " s: another read of it has not ended, or its disk does not respond; try again later"};
}

}  // namespace store
