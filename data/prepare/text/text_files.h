#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/prepare/text/text_source.h"

namespace data::prepare {

struct TextFilesOptions {
  /// Files, read in this order, and folders: the files below one, in the order of their paths.
  std::vector<std::filesystem::path> paths = {};
  std::int64_t most_bytes = 0;                       // of all files; the files after it are left out. 0: all
  std::int64_t part_bytes = std::int64_t{64} << 20;  // 1 to 2^40
};

/// Plain text files, UTF-8 by intent. A file is a record. A file over 1 MiB is several records of about 1 MiB, cut
/// after a line end, so that a tokenizer never sees a text of gigabytes.
///
/// Left out below a folder: hidden files and folders, links, files that cannot be read. Left out everywhere: empty
/// files and files with a NUL byte in their first 8 KiB. At most 1,000,000 files.
///
/// Throws std::runtime_error naming the path and the remedy: no path, a path that is not there, no file at all.
TextSource open_text_files(const TextFilesOptions& options);

/// The text built into this program: a few essays on training, 1 part. most_bytes: as in TextFilesOptions.
TextSource open_built_in_text(std::int64_t most_bytes = 0);

}  // namespace data::prepare
