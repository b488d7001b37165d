#include "data/text_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "data/fixture.h"
#include "data/hash.h"
#include "data/inflate.h"
#include "data/roff.h"
#include "rank/errors.h"

namespace worker {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 100'000;
constexpr std::uintmax_t kEnoughManBytes = 512 << 10;  ///< packed; about 1.5 MB of text
constexpr std::size_t kMostBytesAPage = 4 << 20;

struct File {
  fs::path path;
  std::uintmax_t bytes = 0;
  std::int64_t modified_ns = 0;  ///< mtime of the content; the file's writer may set it
  std::int64_t changed_ns = 0;   ///< ctime; this machine's kernel sets it
};

std::int64_t ns_of(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Collects the regular files in `range`, at most kMostFiles. Unreadable entries are left out.
template <class Iterator>
void collect(Iterator range, std::vector<File>& out) {
  std::error_code error;
  for (const Iterator end; range != end && out.size() < kMostFiles; range.increment(error)) {
    if (error) break;
    const bool hidden = range->path().filename().native().starts_with('.');
    if constexpr (requires { range.disable_recursion_pending(); }) {
      if (hidden && range->is_directory(error)) range.disable_recursion_pending();
    }
    struct stat status {};
    if (hidden || ::lstat(range->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    out.push_back(
        {range->path(), static_cast<std::uintmax_t>(status.st_size), ns_of(status.st_mtim), ns_of(status.st_ctim)});
  }
}

/// The times of a file that show that the file may have been edited.
enum class Times { kModified, kModifiedAndChanged };

/// A hash of the names (relative to `root`), sizes and times.
std::string fingerprint(const std::vector<File>& files, const fs::path& root, Times times) {
  Checksum sum;
  for (const auto& file : files) {
    sum.add(file.path.lexically_relative(root).native());
    sum.add(":" + std::to_string(file.bytes) + ":" + std::to_string(file.modified_ns));
    if (times == Times::kModifiedAndChanged) sum.add(":" + std::to_string(file.changed_ns));
    sum.add("\n");
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum.value()));
  return text;
}

/// The first `limit` bytes of the file; empty when the file cannot be read.
std::string read_file(const fs::path& path, std::size_t limit) {
  std::ifstream in(path, std::ios::binary);
  std::string text(limit, '\0');
  in.read(text.data(), static_cast<std::streamsize>(limit));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return text;
}

/// Passes documents to the sink until `left` bytes are used up.
bool pass(std::string_view text, std::int64_t& left, const DocumentSink& sink) {
  text = text.substr(0, static_cast<std::size_t>(left));
  if (!text.empty()) sink(text);
  left -= static_cast<std::int64_t>(text.size());
  return left > 0;
}

std::string page_text(const File& file) {
  std::string source = read_file(file.path, kMostBytesAPage);
  if (file.path.extension() != ".gz") return roff_to_text(source);
  try {
    return roff_to_text(gunzip(source, kMostBytesAPage));
  } catch (const std::runtime_error&) {
    return {};
  }
}

std::vector<File> man_pages(const std::string& folder) {
  std::vector<File> pages;
  for (char section = '1'; section <= '8'; ++section) {
    std::error_code error;
    fs::directory_iterator in(fs::path(folder) / (std::string("man") + section), error);
    if (!error) collect(std::move(in), pages);
  }
  std::vector<std::pair<std::uint64_t, File>> keyed;
  for (auto& page : pages) {
    const auto key = checksum_of(page.path.filename().native());
    keyed.emplace_back(key, std::move(page));
  }
  std::sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.path) < std::tie(b.first, b.second.path);
  });
  pages.clear();
  for (auto& [key, page] : keyed) pages.push_back(std::move(page));
  return pages;
}

TextSource man_source(std::vector<File> pages, const TextSourceOptions& options) {
  if (pages.empty()) {
    throw UsageError("data.source = \"man\": there are no manual pages in " + options.man_folder +
                     "; install some (apt-get install man-db manpages), or use \"folder\" or \"fixture\"");
  }
  // Pages have the modification time of their package, so nodes with the same packages can share one token file.
  std::string description = "man max_bytes=" + std::to_string(options.max_bytes) +
                            " files=" + std::to_string(pages.size()) + " " +
                            fingerprint(pages, options.man_folder, Times::kModified);
  return {std::move(description),
          [pages = std::move(pages), left = options.max_bytes](const DocumentSink& sink) {
            std::int64_t remaining = left;
            for (const auto& page : pages) {
              if (!pass(page_text(page), remaining, sink)) break;
            }
          },
          "the manual pages of this machine"};
}

TextSource folder_source(const TextSourceOptions& options) {
  std::error_code error;
  if (options.path.empty() || !fs::is_directory(options.path, error)) {
    throw UsageError("data.path = \"" + options.path +
                     "\": there is no such folder; want a folder of text files that every rank can read");
  }
  std::vector<File> files;
  fs::recursive_directory_iterator in(options.path, fs::directory_options::skip_permission_denied, error);
  if (!error) collect(std::move(in), files);
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.path < b.path; });
  if (files.empty()) throw UsageError("data.path = \"" + options.path + "\": the folder holds no text files");
  std::string description = "folder " + fs::absolute(options.path).lexically_normal().native() +
                            " max_bytes=" + std::to_string(options.max_bytes) +
                            " files=" + std::to_string(files.size()) + " " +
                            fingerprint(files, options.path, Times::kModifiedAndChanged);
  return {std::move(description),
          [files = std::move(files), left = options.max_bytes](const DocumentSink& sink) {
            std::int64_t remaining = left;
            for (const auto& file : files) {
              const auto text = read_file(file.path, std::min<std::uintmax_t>(file.bytes, remaining));
              const bool binary = std::string_view(text).substr(0, 8192).find('\0') != std::string_view::npos;
              if (!binary && !pass(text, remaining, sink)) break;
            }
          },
          options.path};
}

TextSource fixture_source(const TextSourceOptions& options) {
  Checksum sum;
  for (const auto text : fixture_documents()) sum.add(text);
  return {"fixture max_bytes=" + std::to_string(options.max_bytes) + " " + std::to_string(sum.value()),
          [left = options.max_bytes](const DocumentSink& sink) {
            std::int64_t remaining = left;
            for (const auto text : fixture_documents()) {
              if (!pass(text, remaining, sink)) break;
            }
          },
          "the built-in text"};
}

}  // namespace

TextSource open_text_source(const TextSourceOptions& options) {
  if (options.kind == "folder") return folder_source(options);
  if (options.kind == "fixture") return fixture_source(options);
  if (options.kind == "man") return man_source(man_pages(options.man_folder), options);
  if (options.kind != "auto") {
    throw UsageError("data.source = \"" + options.kind + "\": want auto, man, folder or fixture");
  }
  auto pages = man_pages(options.man_folder);
  std::uintmax_t bytes = 0;
  for (const auto& page : pages) bytes += page.bytes;
  return bytes >= kEnoughManBytes ? man_source(std::move(pages), options) : fixture_source(options);
}

}  // namespace worker
