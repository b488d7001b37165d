#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/core/job.h"
#include "controller/store/sqlite_file.h"
#include "controller/store/store.h"

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

/// A database file with one connection that writes and several that read, so that none of them waits for another. Each
/// reader serves one kind of reads. Errors name the file and a remedy.
///
/// Opening has steps, since nothing may be written before all files of a store have passed their checks: the
/// constructor, check(), begin(), then migrations and whatever the owner repairs, and open_readers(). Thread-safe from
/// then on.
class Database {
 public:
  /// How long a read waits for the read before it, which may be long, or hang with the disk.
  static constexpr std::chrono::seconds kReadPatience{15};

  /// Takes the file's lock. Creates the file (mode 0600) if there is none. Throws Error.
  explicit Database(const std::filesystem::path& file);

  const std::string& file() const { return file_; }
  /// True if nothing has changed the file since it was closed in order.
  bool is_known() const { return end_.is_known(); }
  /// Checks as check_database() does. Changes nothing.
  void check(const Migrations& known);
  /// Makes the database one that can be written. `gives_back`: a new database can give free pages back to the disk.
  void begin(bool gives_back);
  /// Opens the connections for reads, and lets the last one to close tidy the file.
  void open_readers(std::size_t count);

  /// For the owner alone, and only until open_readers().
  Connection& writer() { return writer_; }

  /// Runs the work and turns errors of SQLite into Error.
  template <typename Work>
  auto translating(Connection& connection, Work work) -> decltype(work()) {
    try {
      return work();
    } catch (const SQLite::Exception& error) {
      throw noted(translate(error, connection.system_error(), file_));
    } catch (const Error& error) {
      throw noted(named(error));
    }
  }

  /// Runs work(connection) in one transaction, which is durable when this returns. An exception rolls it back. Then
  /// `after_failure` is called before another write begins: copies of what was not stored are to be forgotten.
  template <typename Work>
  auto writing(Work work, const std::function<void()>& after_failure = {})
      -> decltype(work(std::declval<Connection&>())) {
    const std::lock_guard lock(writer_mutex_);
    try {
      return translating(writer_, [&] {
        SQLite::Transaction transaction(writer_.database(), SQLite::TransactionBehavior::IMMEDIATE);
        if constexpr (std::is_void_v<decltype(work(writer_))>) {
          work(writer_);
          transaction.commit();
        } else {
          auto result = work(writer_);
          transaction.commit();
          return result;
        }
      });
    } catch (...) {
      if (after_failure) after_failure();
      throw;
    }
  }

  /// Returns read(connection, arguments...), by the reader with this number.
  template <typename Read, typename... Arguments>
  auto reading(std::size_t reader, Read read, const Arguments&... arguments)
      -> decltype(read(std::declval<Connection&>(), arguments...)) {
    auto& [mutex, connection] = *readers_[reader];
    const std::unique_lock lock(mutex, kReadPatience);
    if (!lock.owns_lock()) throw stands_still();
    return translating(connection, [&] { return read(connection, arguments...); });
  }

 private:
  struct Reader {
    explicit Reader(const std::string& file) : connection(file) {}
    std::timed_mutex mutex;
    Connection connection;
  };
  Connection connect();
  Error named(const Error& error) const;
  const Error& noted(const Error& error);
  Error stands_still() const;

  const std::string file_;
  DatabaseLock lock_;
  CleanEnd end_;  // declared before the connections, so that it is destroyed after them
  std::mutex writer_mutex_;
  Connection writer_;
  std::vector<std::unique_ptr<Reader>> readers_;
};

}  // namespace store
