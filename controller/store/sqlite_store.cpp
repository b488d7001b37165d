#include "store/sqlite_store.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>

#include "os/fd.h"
#include "store/clean_end.h"
#include "store/schema.h"
#include "store/secret.h"
#include "store/sqlite_connection.h"
#include "store/sqlite_errors.h"
#include "store/sqlite_lock.h"
#include "store/sqlite_metrics.h"
#include "store/sqlite_migrate.h"
#include "store/sqlite_rows.h"
#include "store/sqlite_writes.h"

namespace store {

namespace {

namespace fs = std::filesystem;

/// The size to which SQLite truncates the log file after writing it back into the database.
constexpr const char* kWalKeptBytes = "67108864";

/// How long a read waits for the read before it, which may hang with the disk.
constexpr std::chrono::seconds kReadPatience{15};
constexpr const char* kReadStandsStill = " could not be read for 15 s: its disk does not respond; try again later";

/// Creates the file with mode 0600, since it holds the secret. SQLite would let others read it.
void create_private(const fs::path& file) {
  if (const os::Fd created(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)); created) return;
  const bool full = errno == ENOSPC || errno == EDQUOT;
  throw Error(Error::Kind::kFull, full ? "the disk is full: " + file.string() + " cannot be created; free space"
                                       : file.string() + " cannot be written (" + std::strerror(errno) +
                                             "): make it writable for this user");
}

class SqliteStore final : public Store {
 public:
  explicit SqliteStore(const fs::path& file)
      : file_(file.string()), lock_(file.string() + ".lock", file), end_(file), writer_(make_connection(file)) {
    translating(writer_, [&] { prepare_writer(); });
    reader_.emplace(file_);
    translating(*reader_, [&] { reader_->database().exec("PRAGMA query_only = ON"); });
  }

  std::vector<std::int64_t> append(std::span<const Commit> commits) override {
    return writing([&] {
      std::vector<std::int64_t> ids;
      ids.reserve(commits.size());
      for (const Commit& commit : commits) ids.push_back(write_commit(writer_, commit));
      return ids;
    });
  }
  void set_actions(std::span<const std::int64_t> action_ids, ActionState state) override {
    if (action_ids.empty()) return;
    const auto now = std::chrono::floor<core::Millis>(std::chrono::system_clock::now());
    writing([&] {
      for (const auto id : action_ids) write_action_state(writer_, id, state, now);
    });
  }
  void add_metrics(std::span<const MetricRow> rows, std::span<const DeclaredSeries> declared) override {
    if (rows.empty() && declared.empty()) return;
    writing_metrics([&] { write_metrics(writer_, known_series_, buckets_, rows, declared); });
  }

  std::uint32_t remove_metrics(core::JobId job, std::uint32_t most) override {
    return writing_metrics([&] {
      known_series_.forget(job);
      buckets_.forget(job);
      return erase_metrics(writer_, job, most);
    });
  }

  std::optional<core::JobId> find_request(const std::string& request_id) override {
    return reading(read_request, request_id);
  }
  core::JobId next_job_id() override { return reading(read_next_job_id); }
  std::optional<core::Job> load(core::JobId id) override { return reading(read_job, id); }
  std::optional<std::string> spec_json(core::JobId id) override { return reading(read_spec, id); }
  std::vector<core::Job> load_open() override { return reading(read_open_jobs); }
  std::vector<JobRow> list(const ListFilter& filter) override { return reading(read_list, filter); }
  std::int64_t count(std::span<const core::JobState> states, const std::string& sweep) override {
    return reading(read_count, states, sweep);
  }
  std::vector<StoredEvent> node_losses(core::Time since, std::uint32_t limit) override {
    return reading(read_node_losses, since, limit);
  }
  std::vector<StoredEvent> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) override {
    return reading(read_events, job, after_id, limit);
  }
  std::int64_t last_event_id() override { return reading(read_last_event_id); }
  Totals totals(std::int64_t after_event, std::uint32_t most) override {
    return reading(read_totals, after_event, most);
  }
  std::vector<PendingAction> pending_actions() override { return reading(read_pending_actions); }
  std::vector<StepRow> metrics(core::JobId job, core::AttemptNumber attempt, core::AttemptNumber after_attempt,
                               core::Step after_step, std::uint32_t limit) override {
    return reading(read_metrics, job, attempt, after_attempt, after_step, limit);
  }
  Thinned thinned(const ThinRequest& request) override { return reading(read_thinned, request); }
  std::optional<MetricRow> newest_metric(core::JobId job) override { return reading(read_newest_metric, job); }
  std::vector<SeriesRow> series(core::JobId job) override { return reading(read_series, job); }
  std::vector<PartitionRow> partitions() override { return reading(read_partitions); }
  void change_partitions(std::span<const AuditRow> changes) override {
    if (changes.empty()) return;
    writing([&] {
      for (const AuditRow& change : changes) write_partition_change(writer_, change);
    });
  }
  std::vector<AuditRow> audit(std::int64_t before_id, const std::string& partition, std::uint32_t limit) override {
    return reading(read_audit, before_id, partition, limit);
  }
  std::string secret() override { return reading(read_secret); }
  std::string place() override { return reading(read_place); }
  void settle(const std::string& place, bool new_secret) override {
    writing([&] {
      write_place(writer_, place);
      if (new_secret) change_secret(writer_, random_secret());
    });
  }
  std::int64_t schema_version() override {
    return reading([](Connection& c) { return stored_version(c.database()); });
  }

 private:
  Connection make_connection(const fs::path& file) {
    create_private(file);
    check_header(file_);
    try {
      return Connection(file_);
    } catch (const SQLite::Exception& error) {
      throw translate(error, errno, file_);
    }
  }

  /// Writes nothing before the file has passed the check.
  void prepare_writer() {
    auto& database = writer_.database();
    check_database(database, file_, migrations().size(), end_.is_known());
    end_.begin();
    if (database.execAndGet("PRAGMA journal_mode = WAL").getString() != "wal") {
      throw Error(Error::Kind::kOther,
                  file_ + ": its file system cannot hold a write-ahead log; use a data folder on a local disk");
    }
    database.exec("PRAGMA synchronous = FULL");
    database.exec("PRAGMA foreign_keys = ON");
    database.exec(std::string("PRAGMA journal_size_limit = ") + kWalKeptBytes);
    migrate(database, migrations());
    settle_older(writer_);
    write_secret(writer_, random_secret());
    read_secret(writer_);  // throws if the database is damaged
    writer_.tidy_on_close();
  }

  template <typename Work>
  auto translating(Connection& connection, Work work) -> decltype(work()) {
    try {
      return work();
    } catch (const SQLite::Exception& error) {
      auto told = translate(error, connection.system_error(), file_);
      if (told.kind() == Error::Kind::kCorrupt) end_.doubt();
      throw told;
    } catch (const Error& error) {
      const bool names_file = std::string_view(error.what()).find(file_) != std::string_view::npos;
      if (error.kind() == Error::Kind::kCorrupt) end_.doubt();
      const bool about_file = error.kind() == Error::Kind::kCorrupt || error.kind() == Error::Kind::kNewer;
      if (names_file || !about_file) throw;
      throw Error(error.kind(), file_ + ": " + error.what());
    }
  }

  /// Runs the work in one transaction, which is durable when this returns. An exception rolls the transaction back.
  template <typename Work>
  auto writing(Work work) -> decltype(work()) {
    std::lock_guard lock(writer_mutex_);
    return translating(writer_, [&] {
      SQLite::Transaction transaction(writer_.database(), SQLite::TransactionBehavior::IMMEDIATE);
      if constexpr (std::is_void_v<decltype(work())>) {
        work();
        transaction.commit();
      } else {
        auto result = work();
        transaction.commit();
        return result;
      }
    });
  }

  /// As writing(). After a failed transaction known_series_ may hold rows that were not stored, so it is cleared.
  template <typename Work>
  auto writing_metrics(Work work) -> decltype(work()) {
    try {
      return writing(work);
    } catch (...) {
      std::lock_guard lock(writer_mutex_);
      known_series_.clear();
      buckets_.clear();
      throw;
    }
  }

  /// Returns read(connection, arguments...).
  template <typename Read, typename... Arguments>
  auto reading(Read read, const Arguments&... arguments) -> decltype(read(std::declval<Connection&>(), arguments...)) {
    const std::unique_lock lock(reader_mutex_, kReadPatience);
    if (!lock.owns_lock()) throw Error(Error::Kind::kOther, file_ + kReadStandsStill);
    return translating(*reader_, [&] { return read(*reader_, arguments...); });
  }

  const std::string file_;
  FileLock lock_;
  CleanEnd end_;  // declared before the connections, so that it is destroyed after them
  std::mutex writer_mutex_;
  Connection writer_;
  KnownSeries known_series_;
  MetricBuckets buckets_;
  std::timed_mutex reader_mutex_;
  std::optional<Connection> reader_;
};

}  // namespace

std::unique_ptr<Store> open_sqlite_store(const fs::path& file) {
  return std::make_unique<SqliteStore>(file);
}

}  // namespace store
