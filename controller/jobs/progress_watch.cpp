#include "jobs/progress_watch.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "contract/fence_file.h"
#include "os/durable_file.h"
#include "os/patience.h"
#include "schema/utf8.h"

namespace jobs {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBefore = 8 << 20;

bool is_other_file(std::string_view name) {
  if (name.starts_with('.') || name.starts_with("events.out.tfevents") || name == contract::kFenceFile) return true;
  constexpr std::array<std::string_view, 6> kEndings = {".log", ".out", ".err", ".lock", ".pid", ".tmp"};
  return std::ranges::any_of(kEndings, [&](auto ending) { return name.ends_with(ending); });
}

bool is_other_folder(std::string_view name) {
  return name.starts_with('.') || name == "wandb" || name == "mlruns" || name == "__pycache__";
}

/// FNV-1a: the same in every build, for it is stored.
std::uint64_t digest_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

void add_file(const fs::path& path, const std::string& name, FolderContents::Entry& entry) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return;  // gone meanwhile, or a link that leads nowhere
  if (!S_ISREG(status.st_mode)) return;
  const std::int64_t at = status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
  // Summed, for folders list their files in any order.
  entry.digest += digest_of(name + "\n" + std::to_string(status.st_size) + "\n" + std::to_string(at));
  entry.newest_ns = std::max(entry.newest_ns, at);
}

class Walk {
 public:
  explicit Walk(FolderContents& contents) : contents_(contents) {}

  void into(const fs::path& folder, const std::string& name, int depth) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      if (++seen_ > kMostFiles) {
        contents_.trouble = "more than " + std::to_string(kMostFiles) + " files are in it";
        return;
      }
      const auto own = entry->path().filename().string();
      std::error_code none;
      const bool is_folder = fs::is_directory(entry->symlink_status(none));
      if (is_folder ? is_other_folder(own) : is_other_file(own)) continue;
      // As it can be noted: names that differ in bytes that are no text share an entry, and a digest of both.
      if (depth == 0) top_ = schema::valid_utf8(own);
      if (is_folder) {
        if (depth + 1 < kDeepest) into(entry->path(), name + own + "/", depth + 1);
      } else {
        add_file(entry->path(), name + own, contents_.entries[top_]);
      }
      if (!contents_.trouble.empty()) return;
    }
    // One below it may be deleted while it is looked at.
    if (error && (depth == 0 || error != std::errc::no_such_file_or_directory)) contents_.trouble = error.message();
    if (depth == 0 && error == std::errc::no_such_file_or_directory) contents_.trouble.clear();
  }

 private:
  FolderContents& contents_;
  std::string top_;
  std::size_t seen_ = 0;
};

std::optional<core::CheckpointFolderSeen> what_is_new(const fs::path& folder, const fs::path& before_file,
                                                      core::AttemptNumber attempt) {
  auto before = contents_from_text(os::read_small_file(before_file, kMostBefore));
  if (!before) {
    before.emplace();
    before->trouble = "what was in " + folder.string() + " before is not known";
  }
  return compare(attempt, *before, before->trouble.empty() ? look_into(folder) : FolderContents{});
}

}  // namespace

FolderContents look_into(const fs::path& folder) {
  FolderContents contents;
  Walk(contents).into(folder, "", 0);
  std::erase_if(contents.entries, [](const auto& entry) { return entry.second == FolderContents::Entry{}; });
  if (!contents.trouble.empty()) contents.trouble = folder.string() + ": " + contents.trouble;
  return contents;
}

FolderContents look_into_soon(const fs::path& folder) {
  auto contents = os::ask_within<FolderContents>(kFolderPatience, os::file_system_of(folder),
                                                 [folder] { return look_into(folder); });
  if (contents) return *std::move(contents);
  FolderContents unknown;
  unknown.trouble = folder.string() + " did not answer";
  return unknown;
}

std::string to_text(const FolderContents& contents) {
  nlohmann::ordered_json json = {{"format", 1}, {"trouble", contents.trouble}, {"entries", nlohmann::json::array()}};
  for (const auto& [name, entry] : contents.entries) {
    json["entries"].push_back({name, entry.digest, entry.newest_ns});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<FolderContents> contents_from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", 0) != 1) return std::nullopt;
  try {
    FolderContents contents;
    json.at("trouble").get_to(contents.trouble);
    for (const auto& entry : json.at("entries")) {
      contents.entries[entry.at(0).get<std::string>()] = {entry.at(1).get<std::uint64_t>(),
                                                          entry.at(2).get<std::int64_t>()};
    }
    return contents;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<core::CheckpointFolderSeen> compare(core::AttemptNumber attempt, const FolderContents& before,
                                                  const FolderContents& after) {
  core::CheckpointFolderSeen seen{attempt, 0, "", before.trouble.empty() ? after.trouble : before.trouble, 0};
  if (!seen.trouble.empty()) return seen;
  std::int64_t newest = 0;
  for (const auto& [name, entry] : after.entries) {
    const auto old = before.entries.find(name);
    if (old != before.entries.end() && old->second.digest == entry.digest) continue;
    if (old == before.entries.end()) ++seen.new_names;
    if (++seen.fresh == 1 || entry.newest_ns >= newest) {
      newest = entry.newest_ns;
      seen.newest = name;
    }
  }
  if (seen.fresh == 0) return std::nullopt;
  return seen;
}

// Not flushed to the disk: what a machine's crash loses is told as not known.
void note_checkpoint_files(const fs::path& folder, const core::AttemptKey& key, const base::DataFolder& data) {
  const auto file = data.checkpoints_before(key);
  std::error_code error;
  if (fs::exists(file, error)) return;  // its ranks may have saved since
  const auto text = to_text(look_into_soon(folder));
  const auto draft = file.string() + ".tmp";
  std::ofstream(draft, std::ios::binary | std::ios::trunc) << text;
  fs::rename(draft, file, error);
}

ProgressWatch::ProgressWatch(EventLog& event_log, SpecCache& specs, base::DataFolder data, bool threads)
    : event_log_(event_log),
      specs_(specs),
      data_(std::move(data)),
      threads_(threads),
      loop_("a fact about an attempt could not be passed on", threads, [this] { return pass_on(); }) {
  loop_.start();
}

void ProgressWatch::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  loop_.close();
}

void ProgressWatch::take(core::JobId job, core::EventBody body) {
  const core::AttemptKey key{job, core::attempt_of(body)};
  std::unique_lock lock(mutex_);
  if (closed_) return;
  const bool looks = calls_for_a_look(job, body);
  if (!threads_ || (!looks && !attempts_.contains(key))) {
    lock.unlock();
    if (looks) look(key);
    event_log_.keep(job, std::move(body));
    return;
  }
  ++attempts_[key];
  waiting_.emplace_back(Fact(job, std::move(body)), looks);
  lock.unlock();
  loop_.wake();
}

bool ProgressWatch::calls_for_a_look(core::JobId id, const core::EventBody& body) {
  const auto* exited = std::get_if<core::RankExited>(&body);
  const auto* gone = std::get_if<core::AttemptGone>(&body);
  if (exited == nullptr && gone == nullptr) return false;
  const core::AttemptKey key{id, core::attempt_of(body)};
  try {
    const auto job = event_log_.job(id);
    if (job == nullptr || job->reports() || job->cancel_requested) {
      ends_.erase(key);
      return false;
    }
    auto& ends = ends_[key];
    const bool known = key.number >= 1 && key.number <= job->attempts.size();
    const auto* attempt = known ? &job->attempts[key.number - 1] : nullptr;
    for (core::RankNumber rank = 0; attempt != nullptr && rank < attempt->ranks.size(); ++rank) {
      if (attempt->ranks[rank].state == core::RankState::kExited) ends.ranks.insert(rank);
    }
    if (attempt != nullptr && attempt->cause != core::Cause::kNone) ends.went_wrong = true;
    if (gone != nullptr && gone->cause != core::Cause::kCompleted) ends.went_wrong = true;
    if (exited != nullptr) {
      ends.ranks.insert(exited->rank);
      if (exited->exit != core::ExitStatus{} || exited->out_of_memory) ends.went_wrong = true;
    }
    if (gone == nullptr && ends.ranks.size() < job->world_size) return false;
    const bool looks = ends.went_wrong && (attempt == nullptr || attempt->state != core::AttemptState::kEnded);
    ends_.erase(key);
    return looks;
  } catch (const std::exception& e) {
    spdlog::warn("job {} attempt {}: whether it saved anything is not looked for: {}", id, key.number, e.what());
    return false;
  }
}

std::optional<core::Millis> ProgressWatch::pass_on() {
  std::unique_lock lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  auto [fact, looks] = std::move(waiting_.front());
  waiting_.pop_front();
  const core::AttemptKey key{fact.first, core::attempt_of(fact.second)};
  lock.unlock();
  if (looks) look(key);
  event_log_.keep(fact.first, std::move(fact.second));
  lock.lock();
  if (--attempts_[key] == 0) attempts_.erase(key);
  return core::Millis(0);
}

void ProgressWatch::look(const core::AttemptKey& key) {
  try {
    const auto spec = specs_.get(key.job);
    if (spec == nullptr) return;
    using Seen = std::optional<core::CheckpointFolderSeen>;
    const auto folder = checkpoint_folder(*spec, key.job, data_);
    const auto seen = os::ask_within<Seen>(
        kFolderPatience, os::file_system_of(folder),
        [folder, before = data_.checkpoints_before(key), key] { return what_is_new(folder, before, key.number); });
    if (!seen) {
      event_log_.keep(key.job, core::CheckpointFolderSeen{key.number, 0, "", folder.string() + " did not answer"});
    } else if (*seen) {
      event_log_.keep(key.job, **seen);
    }
  } catch (const std::exception& e) {
    spdlog::warn("job {} attempt {}: whether it saved anything is not known: {}", key.job, key.number, e.what());
  }
}

}  // namespace jobs
