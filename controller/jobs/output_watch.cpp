#include "controller/jobs/output_watch.h"

#include <sys/stat.h>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>
#include <system_error>

#include "base/patience.h"
#include "controller/jobs/progress_watch.h"
#include "spec/rank_path.h"
#include "spec/variables.h"

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

/// Stands for the value of a variable that musterd does not know.
constexpr char kAnyText = '*';

/// The folder above the first name that is no plain text, and what that name begins with. `wild`: the characters that
/// make a name a pattern.
OutputPlace place_of(const fs::path& path, const std::string& wild) {
  OutputPlace place;
  for (const auto& part : path) {
    const auto name = part.string();
    const auto plain = name.find_first_of(wild);
    if (plain != std::string::npos) {
      place.part = name.substr(0, plain);
      return place;
    }
    place.folder /= part;
  }
  return place;
}

/// The path of [report] as rank 0 has it, with kAnyText for what the rank alone knows. nullopt: it may lie anywhere.
std::optional<fs::path> rank_path(const std::string& text, const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                                  const common::DataFolder& data) {
  const auto expanded = spec::expand_rank_path(text, [&](const std::string& name) -> std::optional<std::string> {
    if (name == spec::variable::kJobId) return std::to_string(key.job);
    if (name == spec::variable::kAttempt) return std::to_string(key.number);
    if (name == spec::variable::kCheckpointFolder) return checkpoint_folder(spec, key.job, data).string();
    for (const auto* variables : {&spec.env(), &spec.submitted_env()}) {
      if (const auto set = variables->find(name); set != variables->end()) return set->second;
    }
    return std::string(1, kAnyText);
  });
  if (text.starts_with('$') && expanded.path.starts_with(kAnyText)) return std::nullopt;
  const auto working_folder = spec.working_folder().empty() ? data.job(key.job) : fs::path(spec.working_folder());
  return (working_folder / expanded.path).lexically_normal();
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

std::vector<OutputPlace> output_places(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                                       const common::DataFolder& data) {
  std::vector<OutputPlace> places = {{data.logs(key), ""}, {checkpoint_folder(spec, key.job, data), ""}};
  const auto& report = spec.report();
  const auto path_of = [&](const std::string& text) {
    return text.empty() ? std::nullopt : rank_path(text, spec, key, data);
  };
  if (const auto path = path_of(report.checkpoints())) {
    auto place = place_of(*path, "*?[(\\");
    // Without a wildcard: the file, or the folder, and the drafts beside it that become it.
    if (place.folder == *path) place = {path->parent_path(), path->filename().string()};
    places.push_back(std::move(place));
  }
  if (const auto path = path_of(report.tensorboard())) places.push_back(place_of(*path, std::string(1, kAnyText)));
  return places;
}

OutputWatch::OutputWatch(SpecCache& specs, common::DataFolder data,
                         std::function<void(const core::AttemptKey&)> came_out, bool threads)
    : specs_(specs),
      data_(std::move(data)),
      came_out_(std::move(came_out)),
      threads_(threads),
      loop_("output", "the output of an attempt could not be looked at", threads, [this] { return look(); }) {
  loop_.start();
}

void OutputWatch::set_suspected(const std::vector<core::AttemptKey>& keys) {
  bool fresh = false;
  {
    std::lock_guard lock(mutex_);
    std::map<core::AttemptKey, Scans> next;
    for (const auto& key : keys) {
      const auto known = suspected_.find(key);
      fresh = fresh || known == suspected_.end();
      next.emplace(key, known == suspected_.end() ? Scans() : std::move(known->second));
    }
    suspected_ = std::move(next);
  }
  if (!threads_) {
    look();
  } else if (fresh) {
    loop_.wake();
  }
}

std::optional<core::Millis> OutputWatch::look() {
  std::unique_lock lock(mutex_);
  auto suspected = suspected_;
  lock.unlock();
  if (suspected.empty()) return std::nullopt;
  std::size_t walks = 0;
  for (auto& [key, scans] : suspected) {
    for (const auto& [place, scan] : scans) walks += scan != nullptr && scan->is_under_way() ? 1 : 0;
  }
  for (auto& [key, scans] : suspected) {
    if (may_have_come_out(key, scans, walks)) came_out_(key);
    lock.lock();
    if (const auto place = suspected_.find(key); place != suspected_.end()) place->second = std::move(scans);
    lock.unlock();
  }
  return kBetweenLooks;
}

// Files that musterd may not read are no reason to let a hang go on for ever. A file system that does not answer is.
bool OutputWatch::may_have_come_out(const core::AttemptKey& key, Scans& scans, std::size_t& walks) {
  try {
    if (scans.empty()) {
      const auto spec = specs_.get(key.job);
      if (spec == nullptr) return true;
      for (auto& place : output_places(*spec, key, data_)) scans.emplace_back(std::move(place), nullptr);
    }
  } catch (const std::exception& e) {
    spdlog::warn("job {} attempt {}: whether anything comes out of it is not known: {}", key.job, key.number, e.what());
    return true;
  }
  bool came_out = false;
  for (auto& [place, scan] : scans) {
    if (scan == nullptr) scan = std::make_shared<OutputScan>(place);
    const bool was_under_way = scan->is_under_way();
    if (!was_under_way && walks >= kMostWalks) {
      came_out = true;
      continue;
    }
    const auto looked = base::ask_within<bool>(kFolderPatience, base::file_system_of(place.folder),
                                               [scan = scan] { return scan->look(); });
    came_out = came_out || looked.value_or(true);
    walks -= was_under_way ? 1 : 0;
    if (!looked) scan = nullptr;
    walks += scan != nullptr && scan->is_under_way() ? 1 : 0;
  }
  return came_out;
}

}  // namespace jobs
