#include "jobs/output_watch.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <functional>
#include <string>
#include <system_error>
#include <utility>

#include "jobs/checkpoint_files.h"
#include "os/patience.h"

namespace jobs {
namespace {

namespace fs = std::filesystem;

std::uint64_t hash_of(const std::string& text) {
  return std::hash<std::string>{}(text);
}

/// Of the names, sizes and times of a folder's own files, as far as they can be seen.
std::uint64_t digest_of_files(const fs::path& folder) {
  std::uint64_t digest = 0;
  std::size_t seen = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    struct stat status {};
    if (++seen > kMostFiles || ::stat(entry->path().c_str(), &status) != 0) continue;
    const auto& at = status.st_mtim;
    // Summed, for folders list their files in any order.
    digest += hash_of(entry->path().filename().string() + "\n" + std::to_string(status.st_size) + "\n" +
                      std::to_string(at.tv_sec) + "." + std::to_string(at.tv_nsec));
  }
  return digest;
}

/// The same for a checkpoint folder and what lies below it.
std::uint64_t digest_of_checkpoints(const fs::path& folder) {
  std::uint64_t digest = 0;
  for (const auto& [name, entry] : look_into(folder).entries)
    digest += hash_of(name + "\n" + std::to_string(entry.digest));
  return digest;
}

}  // namespace

OutputWatch::OutputWatch(SpecCache& specs, base::DataFolder data, std::function<void(const core::AttemptKey&)> came_out,
                         bool threads)
    : specs_(specs),
      data_(std::move(data)),
      came_out_(std::move(came_out)),
      threads_(threads),
      loop_("the output of an attempt could not be looked at", threads, [this] { return look(); }) {
  loop_.start();
}

void OutputWatch::set_suspected(const std::vector<core::AttemptKey>& keys) {
  bool fresh = false;
  {
    std::lock_guard lock(mutex_);
    std::map<core::AttemptKey, std::optional<std::uint64_t>> next;
    for (const auto& key : keys) {
      const auto known = suspected_.find(key);
      fresh = fresh || known == suspected_.end();
      next.emplace(key, known == suspected_.end() ? std::nullopt : known->second);
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
  const auto suspected = suspected_;
  lock.unlock();
  if (suspected.empty()) return std::nullopt;
  for (const auto& [key, before] : suspected) {
    const auto now = output_of(key);
    if (!now || now != before) came_out_(key);
    lock.lock();
    if (const auto place = suspected_.find(key); place != suspected_.end()) place->second = now;
    lock.unlock();
  }
  return kBetweenLooks;
}

// nullopt: a file system does not answer. What musterd may not read is no reason to let a hang go on for ever.
std::optional<std::uint64_t> OutputWatch::output_of(const core::AttemptKey& key) {
  try {
    const auto spec = specs_.get(key.job);
    if (spec == nullptr) return std::nullopt;
    const auto ask = [](const fs::path& folder, std::uint64_t (*digest)(const fs::path&)) {
      return os::ask_within<std::uint64_t>(kFolderPatience, os::file_system_of(folder),
                                           [folder, digest] { return digest(folder); });
    };
    const auto logs = ask(data_.logs(key), digest_of_files);
    const auto checkpoints = ask(checkpoint_folder(*spec, key.job, data_), digest_of_checkpoints);
    if (!logs || !checkpoints) return std::nullopt;
    return *logs + *checkpoints;
  } catch (const std::exception& e) {
    spdlog::warn("job {} attempt {}: whether anything comes out of it is not known: {}", key.job, key.number, e.what());
    return std::nullopt;
  }
}

}  // namespace jobs
