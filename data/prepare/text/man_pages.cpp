#include "data/prepare/text/man_pages.h"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/checksum.h"
#include "data/prepare/text/fixture.h"
#include "data/prepare/text/roff.h"
#include "data/prepare/text/text_source.h"
#include "data/prepare/text/unpack.h"

namespace data::prepare {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostManPageBytes = 4 << 20;
constexpr std::size_t kMostManPages = 1'000'000;
constexpr std::int64_t kManPagesAPart = 512;
constexpr std::int64_t kEnoughManBytes = 512 << 10;  // packed; about 1.5 MB of text

std::string man_page_text(const ManPage& page) {
  return roff_to_text(man_page_source(page.path));
}

/// Leaves out the pages after `most_bytes` of text. Returns how much of the last page is kept.
std::size_t keep_bytes_of(std::vector<ManPage>& pages, std::int64_t most_bytes) {
  auto left = static_cast<std::size_t>(most_bytes);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto bytes = man_page_text(pages[i]).size();
    if (bytes < left) {
      left -= bytes;
      continue;
    }
    pages.resize(i + 1);
    return left;
  }
  return kMostManPageBytes;
}

}  // namespace

std::vector<ManPage> list_man_pages(const fs::path& folder) {
  std::vector<ManPage> pages;
  for (char section = '1'; section <= '8'; ++section) {
    std::error_code error;
    fs::directory_iterator in(folder / (std::string("man") + section), error);
    for (const fs::directory_iterator end; !error && in != end && pages.size() < kMostManPages; in.increment(error)) {
      ManPage page{base::checksum_of(in->path().filename().native()), in->path()};
      if (::lstat(page.path.c_str(), &page.status) == 0 && S_ISREG(page.status.st_mode)) pages.push_back(page);
    }
  }
  std::sort(pages.begin(), pages.end(),
            [](const ManPage& a, const ManPage& b) { return std::tie(a.order, a.path) < std::tie(b.order, b.path); });
  return pages;
}

std::string man_page_source(const fs::path& path) {
  try {
    const auto bytes = InputFile(path).read_all(kMostManPageBytes);
    return path.extension() == ".gz" ? gunzip(bytes, kMostManPageBytes) : bytes;
  } catch (const std::runtime_error&) {
    return {};  // one damaged page of thousands
  }
}

std::string fingerprint_of(const std::vector<ManPage>& pages, const fs::path& folder) {
  base::Checksum sum;
  for (const auto& page : pages) {
    sum.add(page.path.lexically_relative(folder).native() + ":" + std::to_string(page.status.st_size) + ":" +
            std::to_string(page.status.st_mtim.tv_sec) + "\n");
  }
  return sum.hex();
}

TextSource open_man_text(const ManTextOptions& options) {
  check_range("max bytes", options.most_bytes, 0, std::int64_t{1} << 50);
  auto pages = list_man_pages(options.folder);
  if (pages.empty()) {
    throw std::runtime_error(options.folder.native() +
                             ": there are no manual pages; install some (apt-get install man-db manpages), or name a "
                             "folder with man1 to man8 in it");
  }
  const auto of_last = options.most_bytes > 0 ? keep_bytes_of(pages, options.most_bytes) : kMostManPageBytes;
  const auto count = std::ssize(pages);
  std::string description = "man " + options.folder.native() + " max_bytes=" + std::to_string(options.most_bytes) +
                            " pages=" + std::to_string(count) + " " + fingerprint_of(pages, options.folder);
  return {RecordKind::kText,
          std::move(description),
          options.folder == ManTextOptions().folder ? "the manual pages of this machine"
                                                    : "the manual pages below " + options.folder.native(),
          {},
          parts_of(count, kManPagesAPart),
          [count, of_last, kept = std::make_shared<const std::vector<ManPage>>(std::move(pages))](
              std::int64_t part, const RecordSink& sink) {
            const auto [first, last] = items_of_part(part, count, kManPagesAPart);
            for (auto i = first; i < last; ++i) {
              const auto text = man_page_text((*kept)[static_cast<std::size_t>(i)]);
              const auto used = i + 1 == count ? cut_text(text, of_last) : std::string_view(text);
              if (!used.empty()) sink({used});
            }
          }};
}

bool has_man_text(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const auto& page : list_man_pages(folder)) bytes += page.status.st_size;
  return bytes >= kEnoughManBytes;
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLeastArticle = 80;
constexpr std::size_t kMostArticle = 64 << 10;
constexpr std::size_t kLeastSummary = 8;
constexpr std::size_t kEnoughPages = 500;
constexpr std::int64_t kPagesAPart = 512;
constexpr std::int64_t kMostPagesAsked = 1'000'000;

/// The words behind a macro, in capitals, without quotes: DESCRIPTION of .SH "Description".
std::string heading_of(std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '"' || c == '\r') continue;
    out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  const auto first = out.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return out.substr(first, out.find_last_not_of(" \t") - first + 1);
}

/// The roff source of the first section with this heading; empty if there is none. Headings in macro definitions do not
/// count.
std::string_view section_of(std::string_view roff, std::string_view heading) {
  std::size_t begin = std::string_view::npos;
  bool in_definition = false;
  for (std::size_t at = 0; at < roff.size();) {
    const auto end = std::min(roff.find('\n', at), roff.size());
    const auto line = roff.substr(at, end - at);
    if (in_definition) {
      in_definition = !line.starts_with("..");
    } else if (line.starts_with(".de") || line.starts_with(".ig") || line.starts_with(".am")) {
      in_definition = true;
    } else if (line.starts_with(".SH") || line.starts_with(".Sh")) {
      if (begin != std::string_view::npos) return roff.substr(begin, at - begin);
      if (heading_of(line.substr(3)) == heading) begin = std::min(end + 1, roff.size());
    }
    at = end + 1;
  }
  return begin == std::string_view::npos ? std::string_view{} : roff.substr(begin);
}

/// The text behind the first dash between spaces: "list directory contents" of "ls - list directory contents".
std::string_view behind_dash(std::string_view name) {
  for (const std::string_view dash : {" - ", " -- "}) {
    if (const auto at = name.find(dash); at != std::string_view::npos) return name.substr(at + dash.size());
  }
  return {};
}

TextSource machine_source(std::vector<ManPage> pages, const ManPairsOptions& options) {
  if (options.most_pages > 0 && std::ssize(pages) > options.most_pages) {
    pages.resize(static_cast<std::size_t>(options.most_pages));
  }
  const auto count = std::ssize(pages);
  return {RecordKind::kPair,
          "man-pairs " + options.folder.native() + " pages=" + std::to_string(count) + " " +
              fingerprint_of(pages, options.folder),
          "the manual pages below " + options.folder.native(),
          {},
          parts_of(count, kPagesAPart),
          [count, kept = std::make_shared<const std::vector<ManPage>>(std::move(pages))](std::int64_t part,
                                                                                         const RecordSink& sink) {
            const auto [first, last] = items_of_part(part, count, kPagesAPart);
            for (auto i = first; i < last; ++i) {
              const auto pair = man_pair(man_page_source((*kept)[static_cast<std::size_t>(i)].path));
              if (pair) sink({pair->article, pair->summary});
            }
          }};
}

TextSource built_in_source(std::size_t found, const ManPairsOptions& options) {
  base::Checksum sum;
  for (const auto page : fixture_pages()) sum.add(page);
  return {RecordKind::kPair,
          "built-in man-pairs " + sum.hex(),
          "the built-in manual pages, because " + options.folder.native() + " has " + std::to_string(found) + " pages",
          {},
          1,
          [](std::int64_t part, const RecordSink& sink) {
            items_of_part(part, 1, 1);
            for (const auto page : fixture_pages()) {
              if (const auto pair = man_pair(page)) sink({pair->article, pair->summary});
            }
          }};
}

}  // namespace

std::optional<ManPair> man_pair(std::string_view roff) {
  const auto name = one_line(roff_to_text(section_of(roff, "NAME")));
  auto article = roff_to_text(section_of(roff, "DESCRIPTION"));
  article.erase(article.find_last_not_of(" \n") + 1);  // npos + 1 is 0
  article.erase(0, article.find_first_not_of(" \n"));
  const auto summary = one_line(behind_dash(name));
  if (article.size() < kLeastArticle || summary.size() < kLeastSummary) return std::nullopt;
  return ManPair{std::string(cut_text(article, kMostArticle)), summary};
}

TextSource open_man_pairs(const ManPairsOptions& options) {
  check_range("pages", options.most_pages, 0, kMostPagesAsked);
  auto pages = list_man_pages(options.folder);
  if (pages.size() >= kEnoughPages) return machine_source(std::move(pages), options);
  if (options.may_fall_back) return built_in_source(pages.size(), options);
  throw std::runtime_error(options.folder.native() + ": holds " + std::to_string(pages.size()) +
                           " manual pages, want " + std::to_string(kEnoughPages) +
                           "; install some (apt-get install man-db manpages), or use the built-in ones");
}

}  // namespace data::prepare
