#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "data/prepare/text/source.h"

namespace data::prepare {

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
