#pragma once

#include <filesystem>

namespace store {

/// An exclusive lock of the whole machine on a file that holds the owner's pid. It ends with the process, however that
/// ends; the file stays.
class FileLock {
 public:
  /// Throws Error: kInUse naming `what` and the owner's pid; kFull if the folder takes no writes; kOther if there is no
  /// such folder.
  FileLock(const std::filesystem::path& file, const std::filesystem::path& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace store
