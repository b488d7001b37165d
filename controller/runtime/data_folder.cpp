#include "runtime/data_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <system_error>

#include "runtime/whole_number.h"

namespace runtime {

core::JobId DataFolder::newest_job_folder() const {
  core::JobId newest = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(root_ / "jobs", error), end; !error && at != end; at.increment(error)) {
    const auto id = whole_number<core::JobId>(at->path().filename().native());
    newest = std::max(newest, id.value_or(0));
  }
  return newest;
}

std::string DataFolder::open_to_others() const {
  struct stat info {};
  if (::stat(root_.c_str(), &info) != 0 || (info.st_mode & 07) == 0) return {};
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(info.st_mode & 07777));
  return root_.string() + " is open to everybody on this machine (mode " + mode.data() +
         "), and logs and job folders are in it: chmod 700 " + root_.string();
}

}  // namespace runtime
