#include "spec/jobfile/job_file.h"

#include <algorithm>
#include <fstream>

#include "spec/jobfile/toml_value.h"

namespace jobfile {
namespace {

namespace fs = std::filesystem;

/// Merges `lower` into `upper`. Values of `upper` win. Values are moved, so that they keep their line and column.
void merge(toml::table& upper, toml::table&& lower) {
  for (auto&& [key, node] : lower) {
    auto* mine = upper.get(key);
    if (mine == nullptr) {
      upper.insert(key, std::move(node));
    } else if (mine->is_table() && node.is_table()) {
      merge(*mine->as_table(), std::move(*node.as_table()));
    }
  }
}

/// The text of a file, or why it could not be read.
struct Content {
  std::string text, problem;
};

Content content_of(const fs::path& file) {
  std::error_code error;
  const auto kind = fs::status(file, error);
  if (!fs::exists(kind)) return {"", "there is no such job file; examples/ has some to start from"};
  if (fs::is_directory(kind)) return {"", "this is a folder; want a job file"};
  std::ifstream in(file, std::ios::binary);
  std::string text(kMostJobFileBytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) return {"", "cannot be read; check its permissions"};
  text.resize(static_cast<std::size_t>(in.gcount()));
  return {std::move(text), ""};
}

}  // namespace

std::string text_of_place(const std::string& name, const toml::source_position& at) {
  return at.line == 0 ? name : name + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
}

JobSource::JobSource(File file) : name_(file.name), folder_(file.folder), files_{std::move(file)} {
  while (add_base()) {
  }
}

JobSource JobSource::of_text(std::string_view text, const std::string& name, const fs::path& folder) {
  return JobSource({std::string(text), name, folder, (folder / name).lexically_normal()});
}

JobSource JobSource::of_table(toml::table table, const std::string& name, const fs::path& folder) {
  return JobSource({"", name, folder, folder / name, std::move(table)});
}

JobSource JobSource::of_file(const fs::path& file) {
  const auto name = shown(file.native());
  auto [text, problem] = content_of(file);
  if (!problem.empty()) {
    JobSource refused;
    refused.findings_.push_back(finding_of(name, "", problem));
    return refused;
  }
  std::error_code error;
  return JobSource({std::move(text), name, fs::absolute(file, error).parent_path(), fs::weakly_canonical(file, error)});
}

bool JobSource::refuse(const toml::source_region& place, const std::string& problem) {
  findings_.push_back(finding_of(text_of_place(files_.back().name, place.begin), "", problem));
  return false;
}

std::optional<toml::table> JobSource::newest_table() {
  const auto& file = files_.back();
  if (file.table) return file.table;
  if (file.text.size() > kMostJobFileBytes) {
    findings_.push_back(finding_of(file.name + ":1:1", "", "larger than 1 MiB; this is not a job file"));
    return std::nullopt;
  }
  try {
    return toml::parse(std::string_view(file.text), file.name);
  } catch (const toml::parse_error& error) {
    refuse(error.source(), syntax_problem(error.description()));
    return std::nullopt;
  }
}

bool JobSource::add_base() {
  const auto table = newest_table();
  if (!table) return false;
  const auto& file = files_.back();
  const auto* node = table->get("extends");
  if (node == nullptr) return false;
  const auto* text = node->as_string();
  if (text == nullptr || text->get().empty() || text->get().find('\0') != std::string::npos) {
    return refuse(node->source(), "extends \"" + shown(*node) + "\": want another job file's path in quotes");
  }
  const auto lead = "extends \"" + shown(*node) + "\": ";
  const auto path = (file.folder / text->get()).lexically_normal();
  std::error_code error;
  const auto identity = fs::weakly_canonical(path, error);
  for (const auto& known : files_) {
    if (known.identity != identity) continue;
    return refuse(node->source(), lead + "the files extend each other in a circle; remove one of the extends");
  }
  if (files_.size() == kDeepestExtends) {
    return refuse(node->source(),
                  lead + "more than " + std::to_string(kDeepestExtends) + " files deep; merge some of them");
  }
  if (const auto kind = fs::status(path, error);
      fs::exists(kind) && !fs::is_regular_file(kind) && !fs::is_directory(kind))
    return refuse(node->source(), lead + "this is a pipe or a device; want a job file");
  auto content = content_of(path);
  if (!content.problem.empty()) {
    return refuse(node->source(), lead + content.problem);
  }
  const fs::path written(text->get());
  const auto name = written.is_absolute() ? written : (fs::path(file.name).parent_path() / written).lexically_normal();
  files_.push_back({std::move(content.text), shown(name.native()), path.parent_path(), identity});
  return true;
}

toml::table JobSource::merged() const {
  toml::table all;
  for (const auto& file : files_) {
    auto table = file.table ? *file.table : toml::parse(std::string_view(file.text), file.name);
    table.erase("extends");
    merge(all, std::move(table));
  }
  return all;
}

toml::source_position JobSource::start() const {
  return files_.empty() || !files_.front().table ? toml::source_position{1, 1} : toml::source_position{0, 0};
}

const JobSource::File* JobSource::file_of(const toml::source_region& source) const {
  if (!source.path) return nullptr;
  const auto found = std::ranges::find_if(files_, [&](const File& f) { return f.name == *source.path; });
  return found == files_.end() ? nullptr : &*found;
}

const fs::path& JobSource::folder_of(const toml::source_region& source) const {
  const auto* file = file_of(source);
  return file == nullptr ? folder_ : file->folder;
}

std::string JobSource::text_of(const toml::source_region& source) const {
  const auto* file = file_of(source);
  if (file == nullptr || source.begin.line != source.end.line || source.end.column <= source.begin.column) return {};
  std::string_view rest = file->text;
  for (toml::source_index line = 1; line < source.begin.line; ++line) {
    rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
  }
  const auto line = rest.substr(0, rest.find('\n'));
  if (source.end.column - 1 > line.size()) return {};
  return std::string(line.substr(source.begin.column - 1, source.end.column - source.begin.column));
}

std::size_t JobSource::depth_of(const toml::source_region& source) const {
  const auto* file = file_of(source);
  return file == nullptr ? 0 : static_cast<std::size_t>(file - files_.data());
}

}  // namespace jobfile
