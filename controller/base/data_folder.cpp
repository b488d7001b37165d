#include "base/data_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <system_error>

#include "os/patience.h"
#include "schema/whole_number.h"

namespace base {
namespace {

namespace fs = std::filesystem;

constexpr core::Millis kPathPatience{500};

std::optional<core::JobId> job_below(const fs::path& jobs, const fs::path& path) {
  const auto place = path.lexically_normal().lexically_relative(jobs.lexically_normal());
  return place.empty() ? std::nullopt : schema::whole_number<core::JobId>(place.begin()->native());
}

}  // namespace

core::JobId DataFolder::newest_job_folder() const {
  core::JobId newest = 0;
  std::error_code error;
  for (fs::directory_iterator at(root_ / "jobs", error), end; !error && at != end; at.increment(error)) {
    const auto id = schema::whole_number<core::JobId>(at->path().filename().native());
    newest = std::max(newest, id.value_or(0));
  }
  return newest;
}

std::optional<core::JobId> DataFolder::job_of(const fs::path& path) const {
  const auto jobs = root_ / "jobs";
  if (const auto id = job_below(jobs, path)) return id;
  using Answer = std::optional<core::JobId>;
  return os::ask_within<Answer>(
             kPathPatience, os::file_system_of(path),
             [jobs, path] { return job_below(fs::weakly_canonical(jobs), fs::weakly_canonical(path)); })
      .value_or(std::nullopt);
}

std::string DataFolder::open_to_others() const {
  struct stat info {};
  if (::stat(root_.c_str(), &info) != 0 || (info.st_mode & 07) == 0) return {};
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(info.st_mode & 07777));
  return root_.string() + " is open to everybody on this machine (mode " + mode.data() +
         "), and logs and job folders are in it: chmod 700 " + root_.string();
}

}  // namespace base
