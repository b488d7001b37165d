#include "controller/store/sqlite_connection.h"

#include <sqlite3.h>

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

}  // namespace store
