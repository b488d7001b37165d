#include "runtime/data_folder.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace runtime {

core::JobId DataFolder::newest_job_folder() const {
  core::JobId newest = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(root_ / "jobs", error), end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    core::JobId id = 0;
    const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (bad == std::errc() && rest == name.data() + name.size()) newest = std::max(newest, id);
  }
  return newest;
}

}  // namespace runtime
