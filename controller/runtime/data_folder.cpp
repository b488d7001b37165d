#include "runtime/data_folder.h"

#include <algorithm>
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

}  // namespace runtime
