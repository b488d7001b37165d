#include "controller/jobs/output_scan.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <system_error>

namespace jobs {
namespace {

namespace fs = std::filesystem;

bool is_of_a_tracker(std::string_view name) {
  constexpr std::array<std::string_view, 5> kTrackers = {"wandb", ".wandb", "mlruns", ".aim", ".neptune"};
  return std::ranges::find(kTrackers, name) != kTrackers.end();
}

std::uint64_t digest_of_entry(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 && ::lstat(path.c_str(), &status) != 0) return 0;  // gone meanwhile
  const auto& at = status.st_mtim;
  return std::hash<std::string>{}(path.string() + "\n" + std::to_string(status.st_size) + "\n" +
                                  std::to_string(at.tv_sec) + "." + std::to_string(at.tv_nsec));
}

}  // namespace

bool OutputScan::look() {
  ++looks_;
  if (way_.empty()) {
    digest_ = place_.part.empty() ? digest_of_entry(place_.folder) : 0;
    enter(place_.folder);
  }
  const bool is_whole = walk();
  const int wanted = is_whole && looks_ == 1 ? 1 : 2;
  if (is_whole) {
    quiet_walks_ = before_ == digest_ ? std::min(quiet_walks_ + 1, 2) : 0;
    before_ = digest_;
    looks_ = 0;
  }
  return quiet_walks_ < wanted;
}

void OutputScan::enter(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  if (!error) way_.push_back(std::move(entry));
}

/// True: it has come to the end.
bool OutputScan::walk() {
  constexpr std::size_t kBetweenClocks = 64;
  const auto until = std::chrono::steady_clock::now() + kLongestLook;
  std::size_t seen = 0;
  while (!way_.empty()) {
    if (seen >= most_at_once_) return false;
    if (seen % kBetweenClocks == 0 && std::chrono::steady_clock::now() >= until) return false;
    auto& here = way_.back();
    if (here == fs::directory_iterator()) {
      way_.pop_back();
      continue;
    }
    ++seen;
    const auto entry = *here;
    std::error_code error;
    here.increment(error);  // with an error it is at its end: the folder has been deleted meanwhile
    take_entry(entry);
  }
  return true;
}

void OutputScan::take_entry(const fs::directory_entry& entry) {
  const auto name = entry.path().filename().string();
  if (way_.size() == 1 && name.find(place_.part) == std::string::npos) return;
  std::error_code error;
  const bool is_folder = fs::is_directory(entry.symlink_status(error));
  if (is_folder && is_of_a_tracker(name)) return;
  // Summed, for folders list their files in any order.
  digest_ += digest_of_entry(entry.path());
  if (is_folder && way_.size() < kDeepest) enter(entry.path());
}

}  // namespace jobs
