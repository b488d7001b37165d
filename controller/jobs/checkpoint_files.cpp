#include "jobs/checkpoint_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "contract/fence_file.h"
#include "os/patience.h"
#include "schema/utf8.h"

namespace jobs {
namespace {

namespace fs = std::filesystem;

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

}  // namespace jobs
