#include "controller/common/data_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/durable_file.h"
#include "base/fd.h"
#include "base/numbers.h"
#include "base/patience.h"

namespace common {
namespace {

namespace fs = std::filesystem;

constexpr core::Millis kPathPatience{500};

std::optional<core::JobId> job_below(const fs::path& jobs, const fs::path& path) {
  const auto place = path.lexically_normal().lexically_relative(jobs.lexically_normal());
  return place.empty() ? std::nullopt : base::whole_number<core::JobId>(place.begin()->native());
}

/// The highest number in the text of an array's set.json, which names the folders of its attempts.
core::JobId newest_in(std::string_view text) {
  constexpr std::string_view kJobs = "/jobs/";
  core::JobId newest = 0;
  for (auto at = text.find(kJobs); at != std::string_view::npos; at = text.find(kJobs, at + 1)) {
    const auto number = text.substr(at + kJobs.size(), text.find('/', at + kJobs.size()) - at - kJobs.size());
    newest = std::max(newest, base::whole_number<core::JobId>(number).value_or(0));
  }
  return newest;
}

/// The highest number in the arrays for Slurm; 0: none is above `known`. A waiting element has no folder of its own. An
/// array is read only if it may have a higher number: it is named after its first job, and no sweep has more than
/// core::kMostSweepJobs.
core::JobId newest_in_arrays(const fs::path& folder, core::JobId known) {
  constexpr std::size_t kMostSetFile = 1 << 20;
  core::JobId newest = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const auto first = DataFolder::first_job_of_set(at->path().filename().native());
    if (!first || *first + core::kMostSweepJobs <= known) continue;
    newest = std::max(newest, newest_in(base::read_small_file(at->path() / "set.json", kMostSetFile)));
  }
  return newest;
}

/// Entries that are looked at below one folder; what is beyond them is not counted.
constexpr std::size_t kMostCountedFiles = 1'000'000;
constexpr std::int64_t kBlockBytes = 512;  // of st_blocks, whatever the file system's own are

std::int64_t bytes_of(const std::filesystem::path& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? info.st_blocks * kBlockBytes : 0;
}

// Whatever comes back is an answer; what is wrong with the disk is told by whoever needs to write.
void write_a_byte(const std::filesystem::path& file) {
  const base::Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd && ::pwrite(fd.get(), "\n", 1, 0) == 1) ::fdatasync(fd.get());
}

}  // namespace

void make_data_folder(const fs::path& folder) {
  const bool fresh = !fs::exists(folder);
  base::make_folders(folder);
  if (fresh) ::chmod(folder.c_str(), 0700);
}

std::optional<core::JobId> DataFolder::first_job_of_set(std::string_view name) {
  if (!name.starts_with(kSetStart)) return std::nullopt;
  return base::whole_number<core::JobId>(name.substr(kSetStart.size(), name.find('.') - kSetStart.size()));
}

core::JobId DataFolder::newest_job_folder() const {
  core::JobId newest = 0;
  std::error_code error;
  for (fs::directory_iterator at(root_ / "jobs", error), end; !error && at != end; at.increment(error)) {
    const auto id = base::whole_number<core::JobId>(at->path().filename().native());
    newest = std::max(newest, id.value_or(0));
  }
  return std::max(newest, newest_in_arrays(root_ / "slurm", newest));
}

std::optional<core::JobId> DataFolder::job_of(const fs::path& path) const {
  const auto jobs = root_ / "jobs";
  if (const auto id = job_below(jobs, path)) return id;
  using Answer = std::optional<core::JobId>;
  return base::ask_within<Answer>(
             kPathPatience, base::file_system_of(path),
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

DiskProbe::DiskProbe(Hearing& hearing, Clock& clock, std::filesystem::path file, bool threads)
    : hearing_(hearing),
      clock_(clock),
      file_(std::move(file)),
      loop_("disk-probe", "the disk could not be probed", threads, [this] { return write(); }) {
  loop_.start();
}

void DiskProbe::ask() {
  const auto written_at = hearing_.written_at();
  if (!loop_.is_running() || (written_at && clock_.monotonic() - *written_at < kAgainAfter)) return;
  std::lock_guard lock(mutex_);
  wanted_ = true;
  loop_.wake();
}

void DiskProbe::ask_and_wait(core::Millis patience) {
  ask();
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, patience, [&] { return !wanted_; });
}

std::optional<core::Millis> DiskProbe::write() {
  {
    std::lock_guard lock(mutex_);
    if (!wanted_) return std::nullopt;
  }
  {
    const Hearing::Write write(hearing_);
    write_a_byte(file_);
  }
  std::lock_guard lock(mutex_);
  wanted_ = false;
  done_.notify_all();
  return std::nullopt;
}

}  // namespace common
