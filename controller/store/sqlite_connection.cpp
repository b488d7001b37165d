#include "store/sqlite_connection.h"

#include <sqlite3.h>

#include <limits>

namespace store {

namespace {
/// A call waits only if another program, such as sqlite3, holds the database.
constexpr int kBusyTimeoutMs = 5000;
}  // namespace

Query::~Query() {
  statement_.tryReset();
  statement_.clearBindings();
}

Query& Query::with(std::int64_t value) {
  statement_.bind(++bound_, value);
  return *this;
}

Query& Query::with(double value) {
  statement_.bind(++bound_, value);
  return *this;
}

Query& Query::with(const std::string& value) {
  statement_.bindNoCopy(++bound_, value);
  return *this;
}

Query& Query::with(std::string_view value) {
  statement_.bind(++bound_, std::string(value));
  return *this;
}

Query& Query::with(core::Time value) {
  return with(std::int64_t{value.time_since_epoch().count()});
}

Query& Query::with_null() {
  statement_.bind(++bound_);
  return *this;
}

double Query::real(int column) const {
  return is_null(column) ? std::numeric_limits<double>::quiet_NaN() : statement_.getColumn(column).getDouble();
}

std::optional<std::int64_t> Query::integer_or_none(int column) const {
  return is_null(column) ? std::nullopt : std::optional(integer(column));
}

std::optional<core::Time> Query::time_or_none(int column) const {
  return is_null(column) ? std::nullopt : std::optional(time(column));
}

Connection::Connection(const std::string& file)
    : database_(file, SQLite::OPEN_READWRITE | SQLite::OPEN_NOMUTEX, kBusyTimeoutMs) {
  sqlite3_db_config(database_.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

void Connection::tidy_on_close() {
  sqlite3_db_config(database_.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
}

Query Connection::query(const char* sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) found = statements_.try_emplace(sql, database_, sql).first;
  return Query(found->second);
}

int Connection::system_error() const {
  return sqlite3_system_errno(database_.getHandle());
}

}  // namespace store
