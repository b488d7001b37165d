#pragma once

#include <filesystem>

#include "os/fd.h"

namespace store {

/// An exclusive lock on a file, valid for the whole machine. The file holds the owner's pid. The kernel frees the lock
/// when the process ends, even by kill -9; the file stays.
class FileLock {
 public:
  /// Throws Error: kInUse with `what` and the owner's pid; kFull if the folder cannot be written; kOther if there is no
  /// such folder.
  FileLock(const std::filesystem::path& file, const std::filesystem::path& what);

 private:
  os::Fd lock_;
};

}  // namespace store
