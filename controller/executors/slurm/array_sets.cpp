#include <string_view>
#include <system_error>
#include <utility>

#include "base/durable_file.h"
#include "base/numbers.h"
#include "controller/common/data_folder.h"
#include "controller/executors/slurm/launcher.h"

namespace executors::on_slurm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSetComment = "set.";

std::string comment_prefix(const std::string& store_name) {
  return "muster:" + store_name + ":";
}

/// "12.3".
std::string key_text(const core::AttemptKey& key) {
  return std::to_string(key.job) + "." + std::to_string(key.number);
}

/// The record of an element: that of its array, or an empty one where sbatch was never called for the array.
SubmissionRecord record_at(const agent::protocol::ElementPlace& place, std::optional<SubmissionRecord> of_array) {
  auto record = std::move(of_array).value_or(SubmissionRecord{});
  record.set_folder = place.set_folder;
  record.index = place.index;
  return record;
}

}  // namespace

std::string comment_of(const std::string& store_name, const CommentName& name) {
  return comment_prefix(store_name) + (name.is_array ? std::string(kSetComment) : std::string()) + key_text(name.first);
}

std::optional<CommentName> read_comment(const std::string& store_name, std::string_view comment) {
  const auto prefix = comment_prefix(store_name);
  if (!comment.starts_with(prefix)) return std::nullopt;
  comment.remove_prefix(prefix.size());
  const bool is_array = comment.starts_with(kSetComment);
  if (is_array) comment.remove_prefix(kSetComment.size());
  const auto dot = comment.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto job = base::whole_number<core::JobId>(comment.substr(0, dot));
  const auto number = base::whole_number<core::AttemptNumber>(comment.substr(dot + 1));
  return job && number ? std::optional(CommentName{{*job, *number}, is_array}) : std::nullopt;
}

fs::path ArraySets::folder_of(const core::AttemptKey& first) const {
  return folder_ / (std::string(common::DataFolder::kSetStart) + key_text(first));
}

// Under the lock.
void ArraySets::list_once() {
  if (listed_) return;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const auto first = common::DataFolder::first_job_of_set(entry->path().filename().native());
    if (first) unread_.emplace(*first, entry->path());
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

std::optional<SubmissionRecord> ArraySets::record_of(const core::AttemptKey& key, const fs::path& attempt_folder) {
  // An earlier musterd has written one for each element of an array, too.
  if (auto own = read_record(attempt_folder)) return own;
  if (const auto place = find(key)) {
    if (auto of_array = read_record(place->set_folder)) return record_at(*place, std::move(of_array));
  }
  // An element that has begun tells so itself, also where its place in the array has been given to another.
  const auto place = element_place(attempt_folder);
  return place ? std::optional(record_at(*place, read_record(place->set_folder))) : std::nullopt;
}

std::optional<SubmissionRecord> ArraySets::prepared(const core::AttemptKey& key, const fs::path& attempt_folder) {
  if (auto record = record_of(key, attempt_folder)) return record;
  const auto place = find(key);
  return place ? std::optional(record_at(*place, std::nullopt)) : std::nullopt;
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

// Under the lock.
void ArraySets::drop(const fs::path& folder) {
  std::erase_if(places_, [&](const auto& entry) { return entry.second.set_folder == folder.string(); });
}

}  // namespace executors::on_slurm
