#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/fd.h"
#include "data/format/format.h"

namespace data::format {

/// Writes one file of prepared data; see [Note: the file of prepared data].
///
/// The file grows as `path`.part, whose header is zeros up to the end. finish() completes the header, syncs, and
/// renames it to `path`. So a writer that is killed at any point leaves no `path`, and a `path`.part that no reader
/// takes and that the next writer of `path` overwrites. A writer that is destroyed before finish() removes its
/// `path`.part. The `path`.part is locked, so that two processes never write one file (where the file system has
/// locks).
///
/// Memory: 8 bytes a field, 4 a labelled record, 8 an image, and 1 MiB. Not thread-safe.
/// All functions throw std::runtime_error naming path and cause when the file system refuses, and
/// std::invalid_argument naming record and value for contents that no reader would take. After a throw of
/// std::runtime_error the writer is of no more use.
class Writer {
 public:
  /// `vocabulary`: 1 to 2^32; 0: images. `tokenizer`: its SHA-256; zeros: images.
  Writer(std::filesystem::path path, Kind kind, std::uint64_t vocabulary, const base::Sha256::Digest& tokenizer);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// One record. `fields`: two for kPairs, else one; each id is below the vocabulary. `label`: at least 0 for
  /// kLabelled, else -1.
  void add(std::span<const std::span<const std::uint32_t>> fields, std::int32_t label = -1);
  void add(std::initializer_list<std::span<const std::uint32_t>> fields, std::int32_t label = -1) {
    add(std::span(fields.begin(), fields.size()), label);
  }
  /// One record of kImages. `label`: at least -1, which is none.
  void add(const Image& image, std::int32_t label = -1);

  FileInfo finish();

 private:
  void open_part();
  void check_room(std::uint64_t more) const;
  void count_record(std::uint64_t elements);
  void append(std::string_view bytes);
  void fill_to_8();
  void flush();
  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void fail(const char* what, int error) const;

  const std::filesystem::path path_, part_;
  base::Fd fd_;
  Header header_{};
  std::string buffer_;
  std::uint64_t written_ = kFrontBytes;  // with what waits in the buffer
  std::uint32_t block_sum_ = 0;          // of the bytes of the block so far
  std::vector<std::uint32_t> sums_;      // of whole blocks
  std::vector<std::uint64_t> starts_{0};
  std::string labels_;
  std::uint64_t longest_ = 0;
};

/// The facts about the finished file at `path`, after a check of all its bytes: a part of the work that need not be
/// done again. nullopt: there is none, whether or not a writer was killed there. Throws std::runtime_error, as File
/// does, for a file that is damaged.
std::optional<FileInfo> finished_file(const std::filesystem::path& path);

}  // namespace data::format
