#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/checksum.h"

namespace data::format {

// [Note: the file of prepared data] A file `<split>-NNNNN.mdat` holds records, little-endian, in five sections:
//
//   header     4096 bytes: the struct Header, then zeros.
//   elements   The fields of all records one after another, without separators and special tokens. An element is a
//              token of 2 bytes (vocabularies up to 65,536) or 4 bytes, or a byte of an image (rows of RGB).
//   index      u64 for each field of each record: its first element. One more u64 holds the number of elements.
//   labels     kLabelled: i32 a record. kImages: an ImageLabel a record. Other kinds: nothing.
//   checksums  u32 a block: CRC-32C of 16 MiB, counted from byte 4096 up to this section. The last block is shorter.
//
// Index and checksums begin at a multiple of 8; zeros fill the gaps before them. So kind, vocabulary, records and
// elements determine every offset. The header repeats the offsets for other readers, and no other values are taken.

enum class Kind : std::uint32_t { kTokens = 1, kPairs = 2, kLabelled = 3, kImages = 4 };

/// "tokens", "pairs", "labelled", "images": the names in data.json.
std::string_view name_of(Kind kind);
std::optional<Kind> kind_of(std::string_view name);

inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint64_t kFrontBytes = 4096;                    // header and zeros
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 24;  // of one checksum
inline constexpr std::uint64_t kMostRecords = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 46;
inline constexpr std::uint64_t kMostVocabulary = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kMostWithTwoBytes = std::uint64_t{1} << 16;  // vocabulary of tokens of two bytes
/// A record's length is handed on as int32.
inline constexpr std::uint64_t kMostInRecord = std::numeric_limits<std::int32_t>::max();
inline constexpr int kMostSide = 16'384;  // pixels

struct Header {
  char magic[8];  // kMagic
  std::uint32_t version;
  std::uint32_t kind;
  std::uint32_t element_bytes;  // 2, 4, or 1 for images
  std::uint32_t fields;         // a record
  std::uint64_t records;
  std::uint64_t elements;
  std::uint64_t vocabulary;  // 0: images
  std::uint64_t elements_offset;
  std::uint64_t index_offset;
  std::uint64_t labels_offset;
  std::uint64_t checksums_offset;
  std::uint64_t file_bytes;
  std::uint8_t tokenizer[32];  // SHA-256 of the tokenizer; zeros: images
  std::uint32_t block_bytes;
  std::uint32_t checksum;  // CRC-32C of all before it
};
static_assert(sizeof(Header) == 128 && offsetof(Header, tokenizer) == 88 && offsetof(Header, checksum) == 124);

inline constexpr std::string_view kMagic = "MUSTDATA";

struct ImageLabel {
  std::uint16_t height;
  std::uint16_t width;
  std::int32_t label;  // -1: none
};
static_assert(sizeof(ImageLabel) == 8);

std::uint32_t fields_of(Kind kind);
std::uint32_t element_bytes_of(Kind kind, std::uint64_t vocabulary);
std::uint32_t label_bytes_of(Kind kind);

/// The header of a file with these contents, with every offset and its checksum. The tokenizer is taken from `given`,
/// as are kind, vocabulary, records and elements, which must keep the limits above.
Header complete(const Header& given);

/// The number of checksums of a file with this header.
std::uint64_t blocks_of(const Header& header);

/// Why `front`, the first bytes of a file of `file_bytes`, is no front of prepared data; nullopt: it is one, and every
/// section lies within the file. `front` has kFrontBytes bytes, fewer where the file does.
std::optional<std::string> fault_of(std::string_view front, std::uint64_t file_bytes);

/// The facts that data.json tells of a file, and those that it sums up of all files of a split.
struct FileInfo {
  std::string name;  // file_name()
  std::uint64_t bytes = 0;
  std::int64_t records = 0;
  std::int64_t elements = 0;   // of all records
  std::int64_t longest = 0;    // elements of the longest record
  std::uint32_t checksum = 0;  // CRC-32C of the header before its own checksum, then of the checksums

  bool operator==(const FileInfo&) const = default;
};

/// Ends the message about data that are damaged.
inline constexpr const char* kRemedy = "; remove the folder and prepare the data again";

/// The ending of a file's name.
inline constexpr std::string_view kFileEnding = ".mdat";

/// "train-00012.mdat"
std::string file_name(std::string_view split, std::uint64_t part);

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
