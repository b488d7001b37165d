#include "base/torn_save.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>

#include "base/save_name.h"
#include "base/torn_file.h"

namespace base {
namespace {

namespace fs = std::filesystem;

/// What is in one folder.
class Folder {
 public:
  void add(const std::string& name) {
    names_.insert(name);
    if (name.ends_with(".distcp")) has_distcp_ = true;
    const auto of = number_of(name);
    if (!of || of->is_part == NumberOf::IsPart::kNo) return;
    auto& parts = parts_[{of->before, of->after, of->count_text}];
    parts.there.insert(of->number);
    parts.all = of->count;
    parts.is_sure = parts.is_sure || of->is_part == NumberOf::IsPart::kYes;
  }

  std::string why_torn() const {
    // Without a collective each rank writes its own, "__0.metadata".
    const bool has_metadata = std::ranges::any_of(names_, [](const auto& name) { return name.ends_with(".metadata"); });
    if (has_distcp_ && !has_metadata) return "there is no .metadata, which is written last";
    const bool of_trainer = names_.contains("training_args.bin") && names_.contains("optimizer.pt");
    if (of_trainer && !names_.contains("trainer_state.json")) {
      return "there is no trainer_state.json, which is written last";
    }
    for (const auto& [name, parts] : parts_) {
      if (!is_missing_some(name, parts)) continue;
      return std::to_string(parts.there.size()) + " of " + std::to_string(parts.all) + " parts are there";
    }
    return {};
  }

 private:
  /// The parts of one file, by numbers from 0 or from 1.
  struct Parts {
    std::set<std::int64_t> there;
    std::int64_t all = 0;
    bool is_sure = false;
    bool is_whole() const { return static_cast<std::int64_t>(there.size()) >= all; }
  };
  using PartsName = std::tuple<std::string, std::string, std::string>;  // before, after, and the count

  /// "model.safetensors.index.json" lists the parts "model-00001-of-00003.safetensors".
  bool has_index(const PartsName& name) const {
    auto stem = std::get<0>(name);
    while (stem.ends_with('-') || stem.ends_with('_') || stem.ends_with('.')) stem.pop_back();
    return std::ranges::any_of(names_, [&](const auto& other) {
      return other.starts_with(stem) && other.ends_with(".json") && other.find(".index.") != std::string::npos;
    });
  }

  bool is_missing_some(const PartsName& name, const Parts& parts) const {
    if (parts.is_whole() || (!parts.is_sure && !has_index(name))) return false;
    // Parts of another number may be left of an earlier save.
    return std::ranges::none_of(parts_, [&](const auto& other) {
      return std::get<0>(other.first) == std::get<0>(name) && std::get<1>(other.first) == std::get<1>(name) &&
             other.second.is_whole();
    });
  }

  std::set<std::string> names_;
  bool has_distcp_ = false;
  std::map<PartsName, Parts> parts_;
};

/// The files below a folder, at most `most`; empty: there are more, or none.
std::vector<std::string> files_below(const fs::path& folder, std::size_t most) {
  std::vector<std::string> files;
  std::error_code error;
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(folder, kOptions, error), end; !error && entry != end;
       entry.increment(error)) {
    if (most-- == 0) return {};
    std::error_code none;
    if (entry->is_regular_file(none)) files.push_back(entry->path().lexically_relative(folder).string());
  }
  return files;
}

/// The file, or with it the other parts of the save that it is a part of; empty: there are too many names beside it.
std::vector<std::string> parts_beside(const fs::path& file, std::size_t most) {
  const auto name = file.filename().string();
  const auto own = number_of(name);
  if (!own || own->is_part == NumberOf::IsPart::kNo) return {name};
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(file.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    if (most-- == 0) return {};
    auto other = entry->path().filename().string();
    const auto of = number_of(other);
    const bool is_beside = of && of->before == own->before && of->after == own->after;
    if (is_beside || other.find(".index.") != std::string::npos) files.push_back(std::move(other));
  }
  return files;
}

}  // namespace

std::string why_torn(const fs::path& root, const std::vector<std::string>& files, std::size_t most) {
  std::map<fs::path, Folder> folders;
  std::uintmax_t bytes = 0;
  std::size_t looked_at = 0;
  for (const auto& name : files) {
    if (looked_at == most) return {};
    const auto path = root / name;
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error) continue;  // gone meanwhile
    bytes += size;
    ++looked_at;
    folders[path.parent_path()].add(path.filename().string());
    if (auto why = why_file_is_torn(path); !why.empty()) return why;
  }
  for (const auto& [name, folder] : folders) {
    if (auto why = folder.why_torn(); !why.empty()) return why;
  }
  return looked_at > 0 && bytes == 0 ? "it is empty" : std::string();
}

std::string why_torn(const std::string& path, std::size_t most) {
  std::error_code error;
  if (fs::is_directory(path, error)) return why_torn(fs::path(path), files_below(path, most), most);
  if (!fs::is_regular_file(path, error)) return {};
  const auto files = parts_beside(path, most);
  return files.empty() ? why_file_is_torn(path) : why_torn(fs::path(path).parent_path(), files, most);
}

}  // namespace base
