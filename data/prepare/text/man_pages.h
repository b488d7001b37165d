#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/prepare/text/source.h"

namespace data::prepare {

/// One manual page of a folder.
struct ManPage {
  std::uint64_t order;  // a hash of the file name
  std::filesystem::path path;
  struct stat status {};
};

/// The English pages of sections 1 to 8 below `folder`, at most 1,000,000. Links are left out. The order is that of a
/// hash of the file names, so each range of it is a fair sample.
std::vector<ManPage> list_man_pages(const std::filesystem::path& folder);

/// The page's roff source, unpacked, at most 4 MiB; empty for a damaged file.
std::string man_page_source(const std::filesystem::path& path);

/// A hash of names relative to `folder`, sizes and times of modification, which pages have from their package: machines
/// with the same packages have the same one.
std::string fingerprint_of(const std::vector<ManPage>& pages, const std::filesystem::path& folder);

struct ManTextOptions {
  std::filesystem::path folder = "/usr/share/man";
  std::int64_t most_bytes = 0;  // of text: the pages after it are left out and the last is cut. 0: all
};

/// Manual pages as plain text, a page a record; without markup. Damaged pages and pages without text are left out. A
/// part has 512 pages. With most_bytes the pages are read once more, by this function.
///
/// Throws std::runtime_error naming folder and remedy if there is no page.
TextSource open_man_text(const ManTextOptions& options = {});

/// Whether the folder has pages enough to train on: 512 KiB of files.
bool has_man_text(const std::filesystem::path& folder);

}  // namespace data::prepare
