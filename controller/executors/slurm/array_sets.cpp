#include "controller/executors/slurm/array_sets.h"

#include <system_error>

#include "base/durable_file.h"
#include "base/whole_number.h"
#include "controller/executors/slurm/attempt_files.h"

namespace executors::on_slurm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSet = "set-";

/// 12 of "set-12.3"; nullopt: the folder is no array's.
std::optional<core::JobId> first_job_of(const std::string& name) {
  if (!name.starts_with(kSet)) return std::nullopt;
  return base::whole_number<core::JobId>(name.substr(kSet.size(), name.find('.') - kSet.size()));
}

}  // namespace

fs::path ArraySets::folder_of(const core::AttemptKey& first) const {
  return folder_ / (std::string(kSet) + std::to_string(first.job) + "." + std::to_string(first.number));
}

// Under the lock.
void ArraySets::list_once() {
  if (listed_) return;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto first = first_job_of(entry->path().filename().string())) unread_.emplace(*first, entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    unread_.clear();
    throw std::system_error(error, folder_.string());
  }
  listed_ = true;
}

void ArraySets::read(const fs::path& folder) {
  const auto members = read_set_file(folder / kSetFile);
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    if (members[i].job != 0) places_.insert_or_assign(members[i], agent::protocol::ElementPlace{folder.string(), i});
  }
}

std::optional<agent::protocol::ElementPlace> ArraySets::find(const core::AttemptKey& key) {
  std::lock_guard lock(mutex_);
  if (const auto found = places_.find(key); found != places_.end()) return found->second;
  list_once();
  const auto end = unread_.upper_bound(key.job);
  for (auto at = unread_.upper_bound(key.job - core::kMostSweepJobs); at != end;) {
    read(at->second);
    at = unread_.erase(at);
  }
  const auto found = places_.find(key);
  return found == places_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<SubmissionRecord> ArraySets::record_of(const core::AttemptKey& key) {
  const auto place = find(key);
  auto record = place ? read_record(place->set_folder) : std::nullopt;
  if (!record) return std::nullopt;
  record->set_folder = place->set_folder;
  record->index = place->index;
  return record;
}

void ArraySets::write(const std::vector<LaunchRequest>& members, bool forward_signals) {
  const auto folder = folder_of(members.front().key);
  std::lock_guard lock(mutex_);
  list_once();
  // Whatever it was, nobody is in it any more.
  std::erase_if(unread_, [&](const auto& entry) { return entry.second == folder; });
  drop(folder);
  write_set_files(folder, members, forward_signals);
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    places_.insert_or_assign(members[i].key, agent::protocol::ElementPlace{folder.string(), i});
  }
}

void ArraySets::forget(const fs::path& folder) {
  std::lock_guard lock(mutex_);
  drop(folder);
  bool any = false;
  for (const auto* name : {kSetFile, agent::protocol::kSetLaunchFile}) any = fs::remove(folder / name) || any;
  if (any) base::sync_folder(folder);
}

void ArraySets::over(const core::AttemptKey& key) {
  std::lock_guard lock(mutex_);
  places_.erase(key);
}

// Under the lock.
void ArraySets::drop(const fs::path& folder) {
  std::erase_if(places_, [&](const auto& entry) { return entry.second.set_folder == folder.string(); });
}

}  // namespace executors::on_slurm
