#include "controller/store/sqlite_file.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <thread>

namespace store {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPatience{1000}, kPause{20};

/// Modification times have a resolution of up to 4 ms. Two changes within one tick have the same time.
constexpr std::chrono::milliseconds kTick{5};

/// "mstr": marks a database as muster's.
constexpr std::int64_t kApplicationId = 0x6d737472;

bool is_full(int error) {
  return error == ENOSPC || error == EDQUOT;
}

bool is_forbidden(int error) {
  return error == EROFS || error == EACCES || error == EPERM;
}

std::string owner(int descriptor) {
  std::array<char, 32> text{};
  const ssize_t length = pread(descriptor, text.data(), text.size() - 1, 0);
  const long pid = length > 0 ? std::strtol(text.data(), nullptr, 10) : 0;
  return pid > 0 ? "process " + std::to_string(pid) : "another process";
}

/// Takes a lock by `try_it`, which returns 0 if it has it. Returns 0 or the errno. If the musterd before was killed
/// between fork and exec, its child holds the lock for a moment longer, so this waits up to kPatience.
template <typename Try>
int take_lock(Try try_it) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + kPatience;
  while (try_it() != 0) {
    const bool is_held = errno == EWOULDBLOCK || errno == EACCES;
    if (errno != EINTR && (!is_held || Clock::now() >= until)) return is_held ? EWOULDBLOCK : errno;
    std::this_thread::sleep_for(kPause);
  }
  return 0;
}

/// No database is so large; SQLite's own locks are at 1 GiB.
constexpr off_t kLockedByte = off_t{1} << 62;

int lock_byte(int descriptor) {
  struct flock one {};
  one.l_type = F_WRLCK;
  one.l_whence = SEEK_SET;
  one.l_start = kLockedByte;
  one.l_len = 1;
  return ::fcntl(descriptor, F_OFD_SETLK, &one);
}

/// Opens the file, and makes it if there is none.
base::Fd open_private(const fs::path& file) {
  base::Fd opened(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (opened) return opened;
  throw Error(Error::Kind::kFull, is_full(errno)
                                      ? "the disk is full: " + file.string() + " cannot be created; free space"
                                      : file.string() + " cannot be written (" + std::strerror(errno) +
                                            "): make it writable for this user");
}

Error cannot_open(const fs::path& file, int error) {
  const std::string folder = file.parent_path().string(), why = std::strerror(error);
  if (is_forbidden(error)) {
    return Error(Error::Kind::kFull, folder + " cannot be written (" + why +
                                         "): make it writable for this user, or use another data folder");
  }
  if (is_full(error)) {
    return Error(Error::Kind::kFull, "the disk of " + folder + " is full (" + why + "): free space");
  }
  return Error(Error::Kind::kOther,
               "cannot open " + file.string() + " (" + why + "): the data folder must exist and belong to this user");
}

/// Size, inode and modification time; empty: there is no such file.
std::string state_of(const fs::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return {};
  return std::to_string(found.st_size) + " " + std::to_string(found.st_ino) + " " +
         std::to_string(found.st_mtim.tv_sec) + "." + std::to_string(found.st_mtim.tv_nsec) + "\n";
}

std::string read_small(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Error no_room(const std::string& file, const std::string& detail) {
  return Error(Error::Kind::kFull, "the disk is full: nothing more can be written to " + file + " (" + detail +
                                       "); free space; everything written before is safe");
}

Error no_writes(const std::string& file, const std::string& detail) {
  return Error(Error::Kind::kFull, file + " cannot be written (" + detail +
                                       "): make its folder writable for this user; everything written before is safe");
}

Error corrupt(const std::string& file, const std::string& detail) {
  return Error(Error::Kind::kCorrupt,
               file + " is damaged or not a muster database (" + detail +
                   "); the file was not changed: restore a backup, or move it away together with " + file +
                   "-wal to start afresh");
}

/// The schema version that a muster must know to work with the database.
std::int64_t min_reader(SQLite::Database& database) {
  constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
  if (!database.tableExists("meta")) return kAny;
  SQLite::Statement row(database, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?");
  row.bind(1, kMinReader);
  return row.executeStep() ? row.getColumn(0).getInt64() : kAny;
}

bool is_failed_write(int extended) {
  constexpr std::array kCodes{SQLITE_IOERR_WRITE,   SQLITE_IOERR_FSYNC,   SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_TRUNCATE,
                              SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_SHMMAP};
  return std::ranges::find(kCodes, extended) != kCodes.end();
}

}  // namespace

FileLock::FileLock(const fs::path& file, const fs::path& what)
    : lock_(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  if (!lock_) throw cannot_open(file, errno);
  if (const int error = take_lock([&] { return flock(lock_.get(), LOCK_EX | LOCK_NB); }); error != 0) {
    if (error == EWOULDBLOCK) {
      throw Error(Error::Kind::kInUse, what.string() + " is in use by " + owner(lock_.get()) +
                                           ": stop that musterd first, or use another data folder");
    }
    throw Error(Error::Kind::kOther, "cannot lock " + file.string() + " (" + std::strerror(error) +
                                         "): its file system must support flock(2)");
  }
  // The pid is only for messages. If the disk is full and the pid cannot be written, the lock still holds.
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(lock_.get(), 0) != 0 || pwrite(lock_.get(), pid.data(), pid.size(), 0) < 0) return;
}

DatabaseLock::DatabaseLock(const fs::path& file) : lock_(open_private(file)) {
  if (take_lock([&] { return lock_byte(lock_.get()); }) != EWOULDBLOCK) return;
  throw Error(Error::Kind::kInUse, file.string() + " is in use by another musterd, whose lock file " + file.string() +
                                       ".lock was moved away or removed: stop that musterd first");
}

CleanEnd::CleanEnd(fs::path database) : database_(std::move(database)), mark_(database_.string() + ".clean") {}

bool CleanEnd::is_known() const {
  const auto state = state_of(database_);
  return !state.empty() && read_small(mark_) == state && state_of(database_.string() + "-wal").empty();
}

// A power failure may bring the mark back. It is invalid then: the database has a log file, or has changed.
void CleanEnd::begin() {
  ::unlink(mark_.c_str());
  begun_ = true;
}

CleanEnd::~CleanEnd() {
  if (!begun_ || doubted_ || !state_of(database_.string() + "-wal").empty()) return;
  std::this_thread::sleep_for(kTick);
  const auto state = state_of(database_);
  const base::Fd mark(::open(mark_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!mark) return;
  const bool whole = ::write(mark.get(), state.data(), state.size()) == static_cast<ssize_t>(state.size());
  if (!whole) ::unlink(mark_.c_str());
}

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

void check_database(SQLite::Database& database, const std::string& file, const Migrations& known, bool is_known) {
  const std::int64_t version = stored_version(database);
  const std::int64_t owner = database.execAndGet("PRAGMA application_id").getInt64();
  const bool is_new =
      version == 0 && owner == 0 && database.execAndGet("SELECT count(*) FROM sqlite_schema").getInt() == 0;
  if (is_new) return;
  if (owner != kApplicationId) throw corrupt(file, "it is a database of another program");
  const std::string has = file + " has schema version " + std::to_string(version);
  if (version > static_cast<std::int64_t>(known.newest()) &&
      min_reader(database) > static_cast<std::int64_t>(known.newest())) {
    throw Error(Error::Kind::kNewer, has + ", but this muster knows only up to " + std::to_string(known.newest()) +
                                         ": use the newer muster that wrote it, or restore the copy that it made "
                                         "before it changed the schema, " +
                                         file + ".schema-N, without what has happened since");
  }
  if (version < static_cast<std::int64_t>(known.first)) {
    throw Error(Error::Kind::kOther, has + ", of a muster before the first release, but this muster knows only from " +
                                         std::to_string(known.first) +
                                         " on: start with an empty data folder, or use the muster that wrote it");
  }
  if (is_known) return;
  const std::string verdict = database.execAndGet("PRAGMA quick_check(1)").getString();
  if (verdict != "ok") throw corrupt(file, verdict);
}

void migrate(SQLite::Database& database, const Migrations& migrations) {
  const auto stored = static_cast<std::size_t>(stored_version(database));
  for (auto next = stored == 0 ? migrations.first : stored + 1; next <= migrations.newest(); ++next) {
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    database.exec(std::string(migrations.sql[next - migrations.first]));
    database.exec("PRAGMA application_id = " + std::to_string(kApplicationId));
    database.exec("PRAGMA user_version = " + std::to_string(next));
    transaction.commit();
  }
}

Error translate(const SQLite::Exception& error, int system_error, const std::string& file) {
  const int extended = error.getExtendedErrorCode();
  const int kind = error.getErrorCode() & 0xFF;
  std::string detail = error.what();
  // SQLite sets the errno for these two kinds only. For others it is left from an earlier call.
  const int cause = kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN ? system_error : 0;
  if (cause != 0) detail += std::string(", ") + std::strerror(cause);
  if (kind == SQLITE_FULL || is_full(cause) || (kind == SQLITE_IOERR && cause == EFBIG)) return no_room(file, detail);
  if (kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB) return corrupt(file, detail);
  if (kind == SQLITE_READONLY || kind == SQLITE_PERM || is_failed_write(extended) ||
      (kind == SQLITE_CANTOPEN && is_forbidden(cause))) {
    return no_writes(file, detail);
  }
  if (kind == SQLITE_BUSY || kind == SQLITE_LOCKED) {
    return Error(Error::Kind::kInUse, file + " is held by another program (" + detail + "): close it");
  }
  return Error(Error::Kind::kOther, file + ": " + detail);
}

}  // namespace store
