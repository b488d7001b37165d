#include "controller/jobs/progress_watch.h"

#include <sys/stat.h>

#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "agent/protocol/files.h"
#include "agent/watch/checkpoint_name.h"
#include "base/durable_file.h"
#include "base/patience.h"
#include "base/torn_save.h"
#include "base/words.h"

namespace jobs {
namespace {

namespace fs = std::filesystem;

bool is_other_file(std::string_view name) {
  if (name.starts_with('.') || name.starts_with("events.out.tfevents") || name == agent::protocol::kFenceFile)
    return true;
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

/// Digest and time of one file; nothing for a path that is gone meanwhile, or is no file.
FolderContents::Entry entry_of(const fs::path& path, const std::string& name) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const std::int64_t at = status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
  return {digest_of(name + "\n" + std::to_string(status.st_size) + "\n" + std::to_string(at)), at};
}

void add(const FolderContents::Entry& file, FolderContents::Entry& entry) {
  entry.digest += file.digest;  // summed, for folders list their files in any order
  entry.newest_ns = std::max(entry.newest_ns, file.newest_ns);
}

/// True for the last file of torch.distributed.checkpoint. That file is no checkpoint, and a save without it is none.
bool is_metadata(std::string_view name) {
  return name.ends_with(".metadata");
}

struct File {
  std::string name;  // below the folder
  std::string top;   // the name of its entry
  FolderContents::Entry entry;
};

class Walk {
 public:
  void into(const fs::path& folder, const std::string& name, int depth) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      if (++seen_ > kMostFiles) {
        trouble_ = "more than " + std::to_string(kMostFiles) + " files are in it";
        return;
      }
      const auto own = entry->path().filename().string();
      std::error_code none;
      const bool is_folder = fs::is_directory(entry->symlink_status(none));
      if (is_folder ? is_other_folder(own) : is_other_file(own) && !is_metadata(own)) continue;
      // The name as it can be noted: names that differ in bytes that are no text share an entry, and a digest of both.
      if (depth == 0) top_ = base::valid_utf8(own);
      if (is_folder) {
        if (depth + 1 < kDeepest) into(entry->path(), name + own + "/", depth + 1);
      } else {
        files_.push_back({name + own, top_, is_other_file(own) ? Entry{} : entry_of(entry->path(), name + own)});
      }
      if (!trouble_.empty()) return;
    }
    // One below it may be deleted while it is looked at.
    if (error && (depth == 0 || error != std::errc::no_such_file_or_directory)) trouble_ = error.message();
    if (depth == 0 && error == std::errc::no_such_file_or_directory) trouble_.clear();
  }

  const std::vector<File>& files() const { return files_; }
  const std::string& trouble() const { return trouble_; }

 private:
  using Entry = FolderContents::Entry;
  std::vector<File> files_;
  std::string trouble_, top_;
  std::size_t seen_ = 0;
};

/// The files of one save.
struct Save {
  std::set<std::string> tops;  // the names of its entries
  std::vector<std::string> files;
  bool has_step = false;
};

/// The contents of a folder, and the files of its saves by their names.
struct Looked {
  FolderContents contents;
  std::map<std::string, Save> saves;
};

void add_saves(const std::vector<File>& files, Looked& looked) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const auto& file : files) names.push_back(file.name);
  const auto saves = agent::watch::saves_of(names);
  auto& noted = looked.contents.saves.emplace();
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto name = base::valid_utf8(saves[i].name);
    add(files[i].entry, noted[name]);
    auto& save = looked.saves[name];
    save.tops.insert(files[i].top);
    save.files.push_back(files[i].name);
    save.has_step = save.has_step || saves[i].has_step;
  }
}

Looked look(const fs::path& folder) {
  Walk walk;
  walk.into(folder, "", 0);
  Looked looked;
  auto& contents = looked.contents;
  for (const auto& file : walk.files()) add(file.entry, contents.entries[file.top]);
  add_saves(walk.files(), looked);
  const auto is_nothing = [](const auto& entry) { return entry.second == FolderContents::Entry{}; };
  std::erase_if(contents.entries, is_nothing);
  std::erase_if(*contents.saves, is_nothing);
  if (!walk.trouble().empty()) contents.trouble = folder.string() + ": " + walk.trouble();
  return looked;
}

bool is_as_before(const std::map<std::string, FolderContents::Entry>& before, const std::string& name,
                  const FolderContents::Entry& entry) {
  const auto old = before.find(name);
  return old != before.end() && old->second == entry;
}

/// Facts about the saves of one entry that are new or have changed.
struct Judged {
  bool has_step = false, has_whole_step = false;  // a save that tells a step; a whole one
  bool other_is_torn = false;
  bool is_whole() const { return has_step ? has_whole_step : !other_is_torn; }
};

constexpr std::size_t kMostBefore = 8 << 20;

/// Nobody has written there before the attempt.
bool begins_empty(const muster::v1::JobSpec& spec, const core::AttemptKey& key) {
  return key.number == 1 && spec.checkpoint().folder().empty();
}

/// `before_file`: what the folder held, as note_checkpoint_files() has noted it.
std::optional<core::CheckpointFolderSeen> what_is_new(const fs::path& folder, const fs::path& before_file,
                                                      bool began_empty, core::AttemptNumber attempt) {
  auto before = contents_from_text(base::read_small_file(before_file, kMostBefore));
  if (!before && began_empty) before.emplace().saves.emplace();
  if (!before) {
    before.emplace();
    before->trouble = "what was in " + folder.string() + " before is not known";
  }
  // A save that was cut off is no progress.
  const auto after = before->trouble.empty() ? look_for_whole_saves(folder, *before) : FolderContents{};
  return compare(attempt, *before, after);
}

}  // namespace

FolderContents look_into(const fs::path& folder) {
  return look(folder).contents;
}

FolderContents look_for_whole_saves(const fs::path& folder, const FolderContents& before) {
  auto [contents, saves] = look(folder);
  std::map<std::string, Judged> judged;  // by the names of entries
  for (const auto& [name, entry] : *contents.saves) {
    if (before.saves && is_as_before(*before.saves, name, entry)) continue;
    const auto& save = saves.at(name);
    const bool is_torn = !base::why_torn(folder, save.files).empty();
    for (const auto& top : save.tops) {
      auto& of_top = judged[top];
      of_top.has_step = of_top.has_step || save.has_step;
      of_top.has_whole_step = of_top.has_whole_step || (save.has_step && !is_torn);
      of_top.other_is_torn = of_top.other_is_torn || (!save.has_step && is_torn);
    }
  }
  std::erase_if(contents.entries, [&](const auto& entry) {
    const auto found = judged.find(entry.first);
    return !is_as_before(before.entries, entry.first, entry.second) && found != judged.end() &&
           !found->second.is_whole();
  });
  return contents;
}

FolderContents look_into_soon(const fs::path& folder) {
  auto contents = base::ask_within<FolderContents>(kFolderPatience, base::file_system_of(folder),
                                                   [folder] { return look_into(folder); });
  if (contents) return *std::move(contents);
  FolderContents unknown;
  unknown.trouble = folder.string() + " did not answer";
  return unknown;
}

std::string to_text(const FolderContents& contents) {
  nlohmann::ordered_json json = {{"format", 1}, {"trouble", contents.trouble}};
  const auto write = [&json](const char* key, const std::map<std::string, FolderContents::Entry>& entries) {
    json[key] = nlohmann::json::array();
    for (const auto& [name, entry] : entries) json[key].push_back({name, entry.digest, entry.newest_ns});
  };
  write("entries", contents.entries);
  if (contents.saves) write("saves", *contents.saves);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<FolderContents> contents_from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", 0) != 1) return std::nullopt;
  try {
    FolderContents contents;
    json.at("trouble").get_to(contents.trouble);
    const auto read = [](const nlohmann::json& list, std::map<std::string, FolderContents::Entry>& entries) {
      for (const auto& entry : list) {
        entries[entry.at(0).get<std::string>()] = {entry.at(1).get<std::uint64_t>(), entry.at(2).get<std::int64_t>()};
      }
    };
    read(json.at("entries"), contents.entries);
    if (json.contains("saves")) read(json.at("saves"), contents.saves.emplace());
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
void note_checkpoint_files(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                           const common::DataFolder& data) {
  if (begins_empty(spec, key)) return;
  const auto file = data.checkpoints_before(key);
  std::error_code error;
  if (fs::exists(file, error)) return;  // its ranks may have saved since
  const auto text = to_text(look_into_soon(checkpoint_folder(spec, key.job, data)));
  const auto draft = file.string() + ".tmp";
  std::ofstream(draft, std::ios::binary | std::ios::trunc) << text;
  fs::rename(draft, file, error);
}

ProgressWatch::ProgressWatch(EventLog& event_log, SpecCache& specs, common::DataFolder data, bool threads)
    : event_log_(event_log),
      specs_(specs),
      data_(std::move(data)),
      threads_(threads),
      loop_("facts", "a fact about an attempt could not be passed on", threads, [this] { return pass_on(); }) {
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
    const auto seen =
        base::ask_within<Seen>(kFolderPatience, base::file_system_of(folder),
                               [folder, before = data_.checkpoints_before(key), began_empty = begins_empty(*spec, key),
                                key] { return what_is_new(folder, before, began_empty, key.number); });
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
