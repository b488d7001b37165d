#include "data/prepare/text/man_pairs.h"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/checksum.h"
#include "data/prepare/text/fixture.h"
#include "data/prepare/text/man_pages.h"
#include "data/prepare/text/roff.h"

namespace data::prepare {
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

/// What stands behind the first dash between spaces: "list directory contents" of "ls - list directory contents".
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
