#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <optional>
#include <string>
#include <unordered_map>

#include "core/types.h"

namespace store {

/// One run of a prepared statement. Parameters are bound in order. The destructor frees the statement for its next run.
class Query {
 public:
  explicit Query(SQLite::Statement& statement) : statement_(statement) {}
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  /// Binds the next parameter. The value must outlive the query.
  Query& with(std::int64_t value);
  Query& with(double value);  // "not a number" becomes null
  Query& with(const std::string& value);
  Query& with(std::string_view value);
  Query& with(core::Time value);
  Query& with_null();
  template <typename T>
  Query& with(const std::optional<T>& value) {
    return value ? with(*value) : with_null();
  }

  bool next() { return statement_.executeStep(); }
  /// Runs a statement that returns no rows.
  void run() { statement_.exec(); }
  /// Returns the rows changed.
  int run_counting() { return statement_.exec(); }

  // The current row, by column from 0.
  bool is_null(int column) const { return statement_.isColumnNull(column); }
  std::int64_t integer(int column) const { return statement_.getColumn(column).getInt64(); }
  double real(int column) const;  // null is "not a number"
  std::string text(int column) const { return statement_.getColumn(column).getString(); }
  core::Time time(int column) const { return core::Time{core::Millis{integer(column)}}; }
  std::optional<std::int64_t> integer_or_none(int column) const;
  std::optional<core::Time> time_or_none(int column) const;

 private:
  SQLite::Statement& statement_;
  int bound_ = 0;
};

/// A database handle and its prepared statements. Each statement is prepared once. Not thread-safe.
class Connection {
 public:
  /// The file must exist. Closing writes nothing, unless tidy_on_close() was called.
  explicit Connection(const std::string& file);

  SQLite::Database& database() { return database_; }
  /// `sql` must be a literal: its address is the key of the prepared statement.
  Query query(const char* sql);
  /// Lets the last connection to close write the log file back into the database.
  void tidy_on_close();
  /// The errno that SQLite saw in the last failed call; 0: none.
  int system_error() const;

 private:
  SQLite::Database database_;
  std::unordered_map<const char*, SQLite::Statement> statements_;
};

}  // namespace store
