#include "controller/store/sqlite_backup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "base/durable_file.h"
#include "controller/store/sqlite_pair.h"
#include "controller/store/sqlite_rows.h"

namespace store {
namespace {

namespace fs = std::filesystem;

constexpr int kBusyMs = 5000;
constexpr const char* kNoteKey = "backup";
constexpr const char* kReadMeta = "SELECT value FROM meta WHERE key = ?";

Error system_failure(const fs::path& file, int error) {
  return {base::lacks_room(error) ? Error::Kind::kFull : Error::Kind::kOther,
          file.string() + ": " + std::strerror(error)};
}

/// Lets only its owner read the file from its first byte on.
void create_private(const fs::path& file) {
  fs::remove(file);
  const base::Fd made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!made) throw system_failure(file, errno);
}

void sync_file(const fs::path& file) {
  const base::Fd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened || ::fsync(opened.get()) != 0) throw system_failure(file, errno);
}

/// The errors of SQLite as Error, and those of file systems.
template <typename Work>
auto about(const fs::path& file, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const SQLite::Exception& error) {
    throw translate(error, errno, file.string());
  } catch (const std::system_error& error) {
    throw Error(base::lacks_room(error.code().value()) ? Error::Kind::kFull : Error::Kind::kOther, error.what());
  }
}

std::optional<std::string> meta(SQLite::Database& database, const char* key) {
  SQLite::Statement row(database, kReadMeta);
  row.bind(1, key);
  return row.executeStep() ? std::optional(row.getColumn(0).getString()) : std::nullopt;
}

std::int64_t count(SQLite::Database& database, const char* sql) {
  return database.execAndGet(sql).getInt64();
}

void require_whole(SQLite::Database& database, const fs::path& file) {
  const auto verdict = database.execAndGet("PRAGMA integrity_check(1)").getString();
  const bool has_strays = SQLite::Statement(database, "PRAGMA foreign_key_check").executeStep();
  if (verdict == "ok" && !has_strays) return;
  throw Error(Error::Kind::kCorrupt, file.string() + " is damaged (" +
                                         (verdict == "ok" ? "rows refer to rows that are not there" : verdict) + ")");
}

/// A store's database for reading beside a musterd. Not SQLite's read-only mode, which could leave a log file behind.
SQLite::Database open_store(const fs::path& file) {
  if (!fs::is_regular_file(file)) {
    throw Error(Error::Kind::kOther, file.string() +
                                         ": there is no such file; name musterd's data folder with "
                                         "--data-folder");
  }
  check_header(file.string());
  return SQLite::Database(file.string(), SQLite::OPEN_READWRITE, kBusyMs);
}

SQLite::Database open_backup(const fs::path& file) {
  if (!fs::is_regular_file(file)) throw Error(Error::Kind::kOther, file.string() + ": there is no such backup");
  check_header(file.string());
  return SQLite::Database(file.string(), SQLite::OPEN_READONLY, kBusyMs);
}

BackupFacts facts_of(SQLite::Database& jobs, const fs::path& file) {
  BackupFacts facts;
  facts.schema = stored_version(jobs);
  facts.jobs = count(jobs, "SELECT count(*) FROM jobs WHERE id NOT IN (SELECT job_id FROM removed_jobs)");
  facts.open_jobs = count(jobs, "SELECT count(*) FROM jobs WHERE state NOT IN ('succeeded', 'failed', 'cancelled')");
  facts.secret = meta(jobs, "secret").value_or("");
  facts.note = meta(jobs, kNoteKey).value_or("");
  facts.bytes = fs::file_size(file);
  std::error_code none;
  const auto metrics = fs::file_size(metrics_of_backup(file), none);
  facts.metrics_bytes = none ? 0 : metrics;
  return facts;
}

void copy_file_of(const fs::path& from, const fs::path& to, const std::function<void(SQLite::Database&)>& finish) {
  about(from, [&] {
    auto database = open_store(from);
    copy_database(database, to, finish);
  });
}

void require_absent(const fs::path& file) {
  std::error_code error;
  if (fs::symlink_status(file, error).type() == fs::file_type::not_found) return;
  throw Error(Error::Kind::kOther, file.string() + " is there already: name another file, or remove it");
}

fs::path mark_of(const fs::path& jobs_file) {
  return jobs_file.string() + ".restoring";
}

std::string moment_text() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts)};
}

/// Moves a database with its log file to another name. Returns the new name; empty: there was none.
std::string move_away(const fs::path& file) {
  const auto base = file.string() + ".replaced-" + moment_text();
  auto to = base;
  std::error_code error;
  for (int i = 2; fs::exists(to, error); ++i) to = base + "-" + std::to_string(i);
  fs::remove(file.string() + ".clean");
  fs::remove(file.string() + "-shm");
  const auto log = file.string() + "-wal";
  if (fs::exists(log)) fs::rename(log, to + "-wal");
  if (!fs::exists(file)) return {};
  fs::rename(file, to);
  return to;
}

/// True if both databases have the name of the same pair. What cannot be read is of no pair.
bool are_a_pair(const fs::path& backup, const fs::path& metrics) {
  try {
    auto jobs = open_backup(backup);
    auto other = SQLite::Database(metrics.string(), SQLite::OPEN_READWRITE, kBusyMs);
    const auto name = meta(jobs, "pair");
    return name && name == meta(other, "pair");
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

void copy_database(SQLite::Database& from, const fs::path& file, const std::function<void(SQLite::Database&)>& finish) {
  const fs::path part = file.string() + ".part";
  try {
    create_private(part);
    SQLite::Statement copy(from, "VACUUM INTO ?");
    copy.bind(1, part.string());
    copy.exec();
    {
      SQLite::Database made(part.string(), SQLite::OPEN_READWRITE, kBusyMs);
      made.exec("PRAGMA journal_mode = DELETE");
      if (finish) finish(made);
      require_whole(made, file);
    }
    sync_file(part);
    fs::rename(part, file);
    base::sync_folder(file.parent_path());
  } catch (...) {
    std::error_code none;
    fs::remove(part, none);
    throw;
  }
}

void migrate_beside_copy(Database& database, const Migrations& migrations,
                         const std::function<void(const std::string&)>& tell) {
  database.translating(database.writer(), [&] {
    SQLite::Database& jobs = database.writer().database();
    const auto version = stored_version(jobs);
    if (version != 0 && version < static_cast<std::int64_t>(migrations.newest())) {
      const fs::path copy = database.file() + ".schema-" + std::to_string(version);
      about(copy, [&] { copy_database(jobs, copy); });
      tell(database.file() + " had schema version " + std::to_string(version) + " and gets version " +
           std::to_string(migrations.newest()) + "; a copy from before is " + copy.string());
    }
    migrate(jobs, migrations);
  });
}

fs::path metrics_of_backup(const fs::path& backup) {
  return backup.string() + ".metrics";
}

BackupFacts write_backup(const fs::path& jobs_file, const fs::path& backup, const std::string& note,
                         bool with_metrics) {
  require_absent(backup);
  require_absent(metrics_of_backup(backup));
  // The jobs come last: their file says that the backup is whole.
  if (with_metrics) copy_file_of(metrics_file_of(jobs_file), metrics_of_backup(backup), {});
  try {
    copy_file_of(jobs_file, backup, [&](SQLite::Database& made) {
      SQLite::Statement row(made, "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)");
      row.bind(1, kNoteKey);
      row.bind(2, note);
      row.exec();
    });
  } catch (...) {
    std::error_code none;
    if (with_metrics) fs::remove(metrics_of_backup(backup), none);
    throw;
  }
  return about(backup, [&] {
    auto made = open_backup(backup);
    return facts_of(made, backup);
  });
}

BackupFacts read_backup(const fs::path& backup) {
  return about(backup, [&] {
    auto jobs = open_backup(backup);
    check_database(jobs, backup.string(), migrations(), true);
    require_whole(jobs, backup);
    const auto facts = facts_of(jobs, backup);
    if (facts.metrics_bytes > 0) {
      const auto file = metrics_of_backup(backup);
      auto metrics = open_backup(file);
      check_database(metrics, file.string(), metrics_migrations(), true);
      require_whole(metrics, file);
      if (meta(metrics, "pair") != meta(jobs, "pair")) {
        throw Error(Error::Kind::kOther, file.string() + " is of another store than " + backup.string() +
                                             ": put the two files of one backup beside each other");
      }
    }
    return facts;
  });
}

BackupFacts restore_backup(const fs::path& backup, const fs::path& jobs_file,
                           const std::function<void(const std::string&)>& tell) {
  const auto facts = read_backup(backup);
  const auto metrics_file = metrics_file_of(jobs_file);
  return about(jobs_file, [&] {
    const FileLock lock(jobs_file.string() + ".lock", jobs_file);
    give_to_owner(jobs_file.string() + ".lock");
    const auto prepare = [&](const fs::path& from, const fs::path& to, bool has_note) {
      auto database = open_backup(from);
      copy_database(database, to.string() + ".new", [&](SQLite::Database& made) {
        if (!has_note) return;
        SQLite::Statement row(made, "DELETE FROM meta WHERE key = ?");
        row.bind(1, kNoteKey);
        row.exec();
      });
      give_to_owner(to.string() + ".new");
    };
    prepare(backup, jobs_file, true);
    if (facts.metrics_bytes > 0) prepare(metrics_of_backup(backup), metrics_file, false);
    base::write_file_durably(mark_of(jobs_file), fs::absolute(backup).string() + "\n");
    const bool keeps_metrics = facts.metrics_bytes == 0 && are_a_pair(backup, metrics_file);
    const auto make_room = [&](const fs::path& file) {
      const auto to = move_away(file);
      if (!to.empty()) tell(file.string() + " was there before, and is " + to + " now");
    };
    make_room(jobs_file);
    if (!keeps_metrics) make_room(metrics_file);
    base::sync_folder(jobs_file.parent_path());
    fs::rename(jobs_file.string() + ".new", jobs_file);
    if (facts.metrics_bytes > 0) fs::rename(metrics_file.string() + ".new", metrics_file);
    base::sync_folder(jobs_file.parent_path());
    fs::remove(mark_of(jobs_file));
    base::sync_folder(jobs_file.parent_path());
    return facts;
  });
}

void give_to_owner(const fs::path& file) {
  struct stat folder {};
  if (::geteuid() != 0 || ::stat(file.parent_path().c_str(), &folder) != 0) return;
  if (::chown(file.c_str(), folder.st_uid, folder.st_gid) != 0 && errno != ENOENT) throw system_failure(file, errno);
}

void refuse_half_restored(const fs::path& jobs_file) {
  std::error_code error;
  if (!fs::exists(mark_of(jobs_file), error)) return;
  const auto text = base::read_small_file(mark_of(jobs_file));
  const auto from = text.substr(0, text.find('\n'));
  throw Error(Error::Kind::kOther, "a restore of " + from + " into " + jobs_file.parent_path().string() +
                                       " was begun and not finished: run it again, muster admin restore " + from);
}

}  // namespace store
