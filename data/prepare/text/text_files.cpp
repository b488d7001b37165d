#include "data/prepare/text/text_source.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/checksum.h"

namespace data::prepare {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPieceBytes = 1 << 20;        // of a record
constexpr std::int64_t kLineSearchBytes = 64 << 10;  // how far after a cut a line end is looked for
constexpr std::size_t kHeadBytes = 8 << 10;
constexpr std::size_t kMostTextFiles = 1'000'000;
constexpr std::int64_t kMostPartBytes = std::int64_t{1} << 40;

/// A record: bytes [begin, end) of a file before both ends are moved to a line's start.
struct Piece {
  std::size_t file;
  std::int64_t begin, end;
  bool is_limit;  // `end` is where most_bytes ends, and stays
};

/// Adds the regular files below a folder, sorted by path.
void add_folder(const fs::path& folder, std::vector<fs::path>& out) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::recursive_directory_iterator in(folder, fs::directory_options::skip_permission_denied, error);
  for (const fs::recursive_directory_iterator end; !error && in != end; in.increment(error)) {
    std::error_code ignored;
    const bool is_hidden = in->path().filename().native().starts_with('.');
    if (is_hidden && in->is_directory(ignored)) in.disable_recursion_pending();
    if (!is_hidden && !in->is_symlink(ignored) && in->is_regular_file(ignored)) found.push_back(in->path());
    if (out.size() + found.size() > kMostTextFiles) {
      throw std::runtime_error(folder.native() + ": holds more than " + std::to_string(kMostTextFiles) +
                               " files; join small ones, or write JSON lines and use --from jsonl");
    }
  }
  if (error) {
    throw std::runtime_error(folder.native() + ": cannot be read: " + error.message() +
                             "; name a folder that can be read");
  }
  std::sort(found.begin(), found.end());
  out.insert(out.end(), found.begin(), found.end());
}

std::vector<fs::path> files_of(const TextFilesOptions& options) {
  if (options.paths.empty()) throw std::runtime_error("text: no file is named; name files or folders of text");
  std::vector<fs::path> files;
  for (const auto& path : options.paths) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      add_folder(path, files);
    } else {
      files.push_back(path);  // InputFile refuses what cannot be read
    }
  }
  if (files.empty()) {
    throw std::runtime_error(options.paths.front().native() + ": holds no files; name a folder with text files");
  }
  return files;
}

bool is_named(const TextFilesOptions& options, const fs::path& file) {
  return std::find(options.paths.begin(), options.paths.end(), file) != options.paths.end();
}

/// The first line's start at or after `offset`. Without a line end nearby: `offset` itself, moved to the start of a
/// UTF-8 character.
std::int64_t line_start(const InputFile& file, std::int64_t offset) {
  if (offset <= 0) return 0;
  if (offset >= file.bytes()) return file.bytes();
  std::string window(static_cast<std::size_t>(kLineSearchBytes), '\0');
  window.resize(file.read(offset - 1, window));
  if (const auto at = window.find('\n'); at != std::string::npos) return offset + static_cast<std::int64_t>(at);
  std::string before(4, '\0');
  const auto first = std::max<std::int64_t>(0, offset - 3);
  before.resize(file.read(first, std::span(before).first(static_cast<std::size_t>(offset - first + 1))));
  std::int64_t start = offset;
  while (start > first && (static_cast<std::uint8_t>(before[static_cast<std::size_t>(start - first)]) & 0xc0) == 0x80) {
    --start;
  }
  return start;
}

/// True if a file is no text: it has a NUL byte near its start.
bool is_binary(const InputFile& file) {
  std::string head(kHeadBytes, '\0');
  head.resize(file.read(0, head));
  return head.find('\0') != std::string::npos;
}

std::string text_of(const fs::path& path, const Piece& piece) {
  const InputFile file(path);
  const auto begin = line_start(file, piece.begin);
  const auto end = piece.is_limit ? piece.end : line_start(file, piece.end);
  if (end <= begin) return {};
  // One byte more tells whether a limit lies inside of a character.
  std::string text(static_cast<std::size_t>(end - begin + 1), '\0');
  text.resize(file.read(begin, text));
  return std::string(cut_text(text, static_cast<std::size_t>(end - begin)));
}

struct CutFiles {
  std::vector<fs::path> files;
  std::vector<Piece> pieces;
  std::vector<std::size_t> starts;  // the first piece of each part, then their number
};

/// Cuts the files. `sum` gets names, sizes and times.
CutFiles cut_files(const TextFilesOptions& options, base::Checksum& sum) {
  CutFiles out;
  std::int64_t left = options.most_bytes > 0 ? options.most_bytes : INT64_MAX;
  std::int64_t in_part = options.part_bytes;  // the first piece begins a part
  for (const auto& path : files_of(options)) {
    std::int64_t bytes = 0;
    try {
      const InputFile file(path);
      if (is_binary(file)) continue;
      bytes = file.bytes();
      sum.add(fs::absolute(path).lexically_normal().native() + ":" + file.state() + "\n");
    } catch (const std::system_error&) {
      throw;  // the next try may succeed
    } catch (const std::runtime_error&) {
      if (is_named(options, path)) throw;
      continue;
    }
    const auto used = std::min(bytes, left);
    for (std::int64_t begin = 0; begin < used; begin += kPieceBytes) {
      const auto end = std::min(used, begin + kPieceBytes);
      if (in_part >= options.part_bytes) {
        out.starts.push_back(out.pieces.size());
        in_part = 0;
      }
      out.pieces.push_back({out.files.size(), begin, end, end == used && used < bytes});
      in_part += end - begin;
    }
    out.files.push_back(path);
    left -= used;
    if (left == 0) break;
  }
  if (out.starts.empty()) out.starts.push_back(0);
  out.starts.push_back(out.pieces.size());
  return out;
}

}  // namespace

TextSource open_text_files(const TextFilesOptions& options) {
  check_range("part bytes", options.part_bytes, 1, kMostPartBytes);
  check_range("max bytes", options.most_bytes, 0, std::int64_t{1} << 50);
  base::Checksum sum;
  const auto cut = std::make_shared<const CutFiles>(cut_files(options, sum));
  const auto parts = std::ssize(cut->starts) - 1;
  std::string description = "text max_bytes=" + std::to_string(options.most_bytes) +
                            " part_bytes=" + std::to_string(options.part_bytes) +
                            " files=" + std::to_string(cut->files.size()) + " " + sum.hex();
  std::string name =
      options.paths.size() == 1 ? options.paths[0].native() : std::to_string(cut->files.size()) + " text files";
  return in_parts({RecordKind::kText, std::move(description), std::move(name)}, parts, 1,
                  [cut](std::int64_t part, const RecordSink& sink) {
                    const auto number = static_cast<std::size_t>(part);
                    for (auto i = cut->starts[number]; i < cut->starts[number + 1]; ++i) {
                      const auto text = text_of(cut->files[cut->pieces[i].file], cut->pieces[i]);
                      if (!text.empty()) sink({text});
                    }
                  });
}

TextSource open_built_in_text(std::int64_t most_bytes) {
  check_range("max bytes", most_bytes, 0, std::int64_t{1} << 50);
  base::Checksum sum;
  for (const auto text : fixture_texts("documents/")) sum.add(text);
  std::string description = "built-in text max_bytes=" + std::to_string(most_bytes) + " " + std::to_string(sum.value());
  return in_parts({RecordKind::kText, std::move(description), "the built-in text"}, 1, 1,
                  [most_bytes](std::int64_t, const RecordSink& sink) {
                    auto left = most_bytes > 0 ? static_cast<std::size_t>(most_bytes) : SIZE_MAX;
                    for (const auto text : fixture_texts("documents/")) {
                      const auto used = cut_text(text, left);
                      if (!used.empty()) sink({used});
                      left -= std::min(left, text.size());
                    }
                  });
}

}  // namespace data::prepare
