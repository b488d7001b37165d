#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

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

/// The ending of a file's name.
inline constexpr std::string_view kFileEnding = ".mdat";

/// "train-00012.mdat"
std::string file_name(std::string_view split, std::uint64_t part);

}  // namespace data::format
