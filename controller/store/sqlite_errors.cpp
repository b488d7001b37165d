#include "store/sqlite_errors.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace store {

namespace {

Error no_room(const std::string& file, const std::string& detail) {
  return Error(Error::Kind::kFull, "the disk is full: nothing more can be written to " + file + " (" + detail +
                                       "); free space; everything written before is safe");
}

Error no_writes(const std::string& file, const std::string& detail) {
  return Error(Error::Kind::kFull, file + " cannot be written (" + detail +
                                       "): make its folder writable for this user; everything written before is safe");
}

bool is_failed_write(int extended) {
  constexpr std::array kCodes{SQLITE_IOERR_WRITE,   SQLITE_IOERR_FSYNC,   SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_TRUNCATE,
                              SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_SHMMAP};
  return std::ranges::find(kCodes, extended) != kCodes.end();
}

}  // namespace

Error corrupt(const std::string& file, const std::string& detail) {
  return Error(Error::Kind::kCorrupt,
               file + " is damaged or not a muster database (" + detail +
                   "); the file was not changed: restore a backup, or move it away together with " + file +
                   "-wal to start afresh");
}

Error translate(const SQLite::Exception& error, int system_error, const std::string& file) {
  const int extended = error.getExtendedErrorCode();
  std::string detail = error.what();
  const int kind = error.getErrorCode() & 0xFF;
  // SQLite sets the errno for these two kinds only. For others it is left from an earlier call.
  if (system_error != 0 && (kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN))
    detail += std::string(", ") + std::strerror(system_error);
  switch (kind) {
    case SQLITE_FULL:
      return no_room(file, detail);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return corrupt(file, detail);
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return no_writes(file, detail);
    case SQLITE_IOERR:
      if (system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG) return no_room(file, detail);
      if (is_failed_write(extended)) return no_writes(file, detail);
      break;
    case SQLITE_CANTOPEN:
      if (system_error == ENOSPC || system_error == EDQUOT) return no_room(file, detail);
      if (system_error == EROFS || system_error == EACCES || system_error == EPERM) return no_writes(file, detail);
      break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(Error::Kind::kInUse, file + " is held by another program (" + detail + "): close it");
    default:
      break;
  }
  return Error(Error::Kind::kOther, file + ": " + detail);
}

}  // namespace store
