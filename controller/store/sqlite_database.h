#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/store/sqlite_connection.h"
#include "controller/store/sqlite_file.h"
#include "controller/store/store.h"

namespace store {

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
  /// As check_database(). Changes nothing.
  void check(std::size_t newest_version);
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
