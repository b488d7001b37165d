#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "data/prepare/text/text_source.h"

namespace data::prepare {

/// A manual page's source as plain text, by simple rules. Headings, paragraphs and words are kept. Requests, macros
/// (man and mdoc), fonts, comments and table layout are dropped. The result is good enough to train on, but not
/// typeset. A page that only includes another page (".so") gives an empty text. Never throws on any input.
std::string roff_to_text(std::string_view source);

struct ManTextOptions {
  std::filesystem::path folder = "/usr/share/man";
  std::int64_t most_bytes = 0;  // of text: the pages after it are left out and the last is cut. 0: all
};

/// Manual pages as plain text, a page a record; without markup. Damaged pages and pages without text are left out. A
/// part has 512 pages. With most_bytes the pages are read once more, by this function.
///
/// Throws std::runtime_error naming folder and remedy if there is no page.
TextSource open_man_text(const ManTextOptions& options = {});

/// True if the folder has pages enough to train on: 512 KiB of files.
bool has_man_text(const std::filesystem::path& folder);

struct ManPairsOptions {
  std::filesystem::path folder = "/usr/share/man";
  std::int64_t most_pages = 0;  // 0: all; else the first so many in the order of the source
  /// With too few pages: the built-in ones. False: an error.
  bool may_fall_back = true;
};

/// Article and summary of manual pages: the section DESCRIPTION as text, and as target what the section NAME says of
/// the page behind its dash: "list directory contents". English pages of sections 1 to 8. The order is that of a hash
/// of the file names, so each part is a fair sample; a part has 512 pages.
///
/// Left out: pages without one of the two sections, articles below 80 bytes, summaries below 8, links, damaged files.
/// Articles are cut at 64 KiB.
///
/// With fewer than 500 pages in the folder the source is the 20 pages built into this program, and TextSource::name
/// says so. Throws std::runtime_error naming folder and remedy if options.may_fall_back is false.
TextSource open_man_pairs(const ManPairsOptions& options = {});

struct ManPair {
  std::string article, summary;
};

/// The pair of one page's roff source, or nullopt if the page has none. Never throws on any input.
std::optional<ManPair> man_pair(std::string_view roff);

}  // namespace data::prepare
