#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "controller/core/types.h"

namespace store {

/// One run of a prepared statement. The destructor frees the statement for its next run.
class Query {
 public:
  /// Binds the values to the parameters, in order. "Not a number" becomes null, and so does an empty optional.
  template <typename... Values>
  explicit Query(SQLite::Statement& statement, const Values&... values) : statement_(statement) {
    (bind(values), ...);
  }
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  template <typename T>
  void bind(const T& value) {
    if constexpr (requires { value.has_value(); }) {
      value ? bind(*value) : statement_.bind(++bound_);
    } else if constexpr (std::is_same_v<T, core::Time>) {
      bind(value.time_since_epoch().count());
    } else if constexpr (std::is_enum_v<T>) {
      bind(to_string(value));
    } else if constexpr (std::is_integral_v<T>) {
      statement_.bind(++bound_, static_cast<std::int64_t>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      statement_.bind(++bound_, value);
    } else {
      statement_.bind(++bound_, std::string(value));
    }
  }

  void bind_bytes(const std::string& bytes) { statement_.bind(++bound_, bytes.data(), static_cast<int>(bytes.size())); }

  bool next() { return statement_.executeStep(); }
  /// Runs a statement that returns no rows. Returns the rows changed.
  int run() { return statement_.exec(); }

  // The current row, by column from 0.

  bool is_null(int column) const { return statement_.isColumnNull(column); }
  /// A null is "not a number", or an empty optional.
  template <typename T>
  T get(int column) const {
    if constexpr (requires(T value) { value.has_value(); }) {
      return is_null(column) ? T() : T(get<typename T::value_type>(column));
    } else if constexpr (std::is_same_v<T, core::Time>) {
      return core::Time(core::Millis(get<std::int64_t>(column)));
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(statement_.getColumn(column).getInt64());
    } else if constexpr (std::is_floating_point_v<T>) {
      return is_null(column) ? std::numeric_limits<T>::quiet_NaN() : statement_.getColumn(column).getDouble();
    } else {
      return statement_.getColumn(column).getString();
    }
  }
  /// The bytes of a blob, valid until the next row. A null has none.
  std::string_view bytes(int column) const {
    const auto blob = statement_.getColumn(column);
    return {static_cast<const char*>(blob.getBlob()), static_cast<std::size_t>(blob.getBytes())};
  }
  /// Sets the values to those of the columns from `column` on.
  template <typename... Values>
  void get_to(int column, Values&... values) const {
    ((values = get<Values>(column++)), ...);
  }

  /// The first column of the first row; nullopt: there is no row.
  template <typename T>
  std::optional<T> first() {
    return next() ? std::optional(get<T>(0)) : std::nullopt;
  }
  /// read(*this) of every row.
  template <typename Read>
  auto all(Read read) {
    std::vector<std::invoke_result_t<Read, const Query&>> rows;
    while (next()) rows.push_back(read(*this));
    return rows;
  }

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
  template <typename... Values>
  Query query(const char* sql, const Values&... values) {
    return Query(statements_.try_emplace(sql, database_, sql).first->second, values...);
  }
  /// Runs a statement that returns no rows. Returns the rows changed.
  template <typename... Values>
  int run(const char* sql, const Values&... values) {
    return query(sql, values...).run();
  }
  /// The first column of the first row; nullopt: there is no row.
  template <typename T, typename... Values>
  std::optional<T> first(const char* sql, const Values&... values) {
    return query(sql, values...).template first<T>();
  }
  /// A statement that is kept may hold a database that is to be detached.
  void forget_statements() { statements_.clear(); }
  /// Lets the last connection to close write the log file back into the database.
  void tidy_on_close();
  /// The errno that SQLite saw in the last failed call; 0: none.
  int system_error() const;

 private:
  SQLite::Database database_;
  std::unordered_map<const char*, SQLite::Statement> statements_;
};

}  // namespace store
