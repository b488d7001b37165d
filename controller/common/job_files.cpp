#include "controller/common/job_files.h"

#include <sys/stat.h>

#include <system_error>

namespace common {
namespace {

/// Entries that are looked at below one folder; what is beyond them is not counted.
constexpr std::size_t kMostCountedFiles = 1'000'000;
constexpr std::int64_t kBlockBytes = 512;  // of st_blocks, whatever the file system's own are

std::int64_t bytes_of(const std::filesystem::path& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? info.st_blocks * kBlockBytes : 0;
}

}  // namespace

std::int64_t bytes_below(const std::filesystem::path& folder) {
  std::int64_t bytes = bytes_of(folder);
  std::size_t left = kMostCountedFiles;
  std::error_code error;
  const auto options = std::filesystem::directory_options::skip_permission_denied;
  for (std::filesystem::recursive_directory_iterator at(folder, options, error), end; !error && at != end && left > 0;
       at.increment(error), --left) {
    bytes += bytes_of(at->path());
  }
  return bytes;
}

}  // namespace common
