#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/checksum.h"
#include "data/format/format.h"

namespace data::format {

/// The tokens of one field: a view into a File, which must outlive it.
struct Ids {
  const void* data = nullptr;
  std::int64_t size = 0;
  bool wide = false;  // uint32, else uint16

  std::int64_t operator[](std::int64_t at) const {
    return wide ? static_cast<const std::uint32_t*>(data)[at] : static_cast<const std::uint16_t*>(data)[at];
  }
  /// To `size` places.
  void copy_to(std::int64_t* out) const {
    for (std::int64_t i = 0; i < size; ++i) out[i] = (*this)[i];
  }
};

/// One image: rows of RGB, height x width x 3 bytes. A view like Ids.
struct Image {
  std::span<const std::uint8_t> rgb;
  int height = 0;
  int width = 0;
};

/// One file of prepared data, mapped read-only, so that the ranks of a node share its memory; see [Note: the file of
/// prepared data]. All functions but the moves are thread-safe.
///
/// open() checks all that keeps a reader within the file: header, length, index and labels. verify() checks the bytes
/// themselves. A writer never changes a finished file. A file that something else shortens while it is mapped ends the
/// process with SIGBUS.
class File {
 public:
  /// Maps the file and reads its header, index and labels. Throws std::runtime_error naming path, fault and remedy.
  static File open(const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Reads these blocks. Throws std::runtime_error naming path, block and its bytes, when a block does not match its
  /// checksum or holds a token beyond the vocabulary; std::out_of_range for blocks that are not there.
  void verify(std::uint64_t first_block, std::uint64_t blocks) const;
  void verify() const { verify(0, blocks()); }

  Kind kind() const { return Kind{header_.kind}; }
  std::int64_t records() const { return static_cast<std::int64_t>(header_.records); }
  std::int64_t fields() const { return header_.fields; }  // a record
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(header_.vocabulary); }
  std::uint64_t blocks() const { return blocks_of(header_); }
  base::Sha256::Digest tokenizer() const;
  FileInfo info() const;

  // These throw std::out_of_range for a record or field that is not there, and std::logic_error where the kind has no
  // such thing.
  Ids ids(std::int64_t record, std::int64_t field) const;
  /// -1: none, as for every record of kTokens and kPairs.
  std::int32_t label(std::int64_t record) const;
  Image image(std::int64_t record) const;
  /// Elements of all fields of a record.
  std::int64_t length(std::int64_t record) const;

  /// The header without its own checksum, and all checksums: they identify the contents.
  std::string_view header_bytes() const { return section(0, offsetof(Header, checksum)); }
  std::string_view checksums() const { return section(header_.checksums_offset, 4 * blocks()); }

 private:
  File() = default;

  std::string_view section(std::uint64_t offset, std::uint64_t bytes) const { return {map_ + offset, bytes}; }
  std::span<const std::uint64_t> index() const;
  ImageLabel image_label(std::int64_t record) const;
  void read_index();
  void check_labels() const;
  void check_record(std::int64_t record) const;
  void check_vocabulary(std::uint64_t block) const;
  [[noreturn]] void fail(const std::string& why) const;

  std::filesystem::path path_;
  const char* map_ = nullptr;
  std::size_t map_bytes_ = 0;
  Header header_{};
  std::int64_t longest_ = 0;
};

}  // namespace data::format
