#include "data/format/format.h"

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/checksum.h"

namespace data::format {
namespace {

static_assert(std::endian::native == std::endian::little, "prepared data are little-endian");

constexpr std::array<std::pair<Kind, std::string_view>, 4> kNames = {
    {{Kind::kTokens, "tokens"}, {Kind::kPairs, "pairs"}, {Kind::kLabelled, "labelled"}, {Kind::kImages, "images"}}};

constexpr std::uint64_t up_to_8(std::uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

std::uint32_t checksum_of(const Header& header) {
  return base::crc32c({reinterpret_cast<const char*>(&header), offsetof(Header, checksum)});
}

std::string is_not(const char* what, std::uint64_t is, std::uint64_t want) {
  return std::string(what) + " is " + std::to_string(is) + ", not " + std::to_string(want);
}

/// The fault of values from which complete() derives the others.
std::optional<std::string> fault_of_given(const Header& header) {
  if (header.kind < 1 || header.kind > kNames.size())
    return "its kind is " + std::to_string(header.kind) + ", not 1 to 4";
  if (header.records > kMostRecords) return "it has " + std::to_string(header.records) + " records, more than 2^40";
  if (header.elements > kMostElements) return "it has " + std::to_string(header.elements) + " elements, more than 2^46";
  if (Kind{header.kind} == Kind::kImages) {
    if (header.vocabulary != 0) return is_not("its vocabulary", header.vocabulary, 0);
    for (const auto byte : header.tokenizer) {
      if (byte != 0) return "it holds images and names a tokenizer";
    }
  } else if (header.vocabulary < 1 || header.vocabulary > kMostVocabulary) {
    return "its vocabulary is " + std::to_string(header.vocabulary) + ", not 1 to 2^32";
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Kind kind) {
  return kNames.at(static_cast<std::size_t>(kind) - 1).second;
}

std::optional<Kind> kind_of(std::string_view name) {
  for (const auto& [kind, its_name] : kNames) {
    if (its_name == name) return kind;
  }
  return std::nullopt;
}

std::uint32_t fields_of(Kind kind) {
  return kind == Kind::kPairs ? 2 : 1;
}

std::uint32_t element_bytes_of(Kind kind, std::uint64_t vocabulary) {
  if (kind == Kind::kImages) return 1;
  return vocabulary <= kMostWithTwoBytes ? 2 : 4;
}

std::uint32_t label_bytes_of(Kind kind) {
  if (kind == Kind::kImages) return sizeof(ImageLabel);
  return kind == Kind::kLabelled ? sizeof(std::int32_t) : 0;
}

Header complete(const Header& given) {
  const Kind kind{given.kind};
  Header header = given;
  std::memcpy(header.magic, kMagic.data(), sizeof header.magic);
  header.version = kVersion;
  header.element_bytes = element_bytes_of(kind, given.vocabulary);
  header.fields = fields_of(kind);
  header.elements_offset = kFrontBytes;
  header.index_offset = up_to_8(kFrontBytes + given.elements * header.element_bytes);
  header.labels_offset = header.index_offset + 8 * (given.records * header.fields + 1);
  header.checksums_offset = up_to_8(header.labels_offset + given.records * label_bytes_of(kind));
  header.block_bytes = kBlockBytes;
  header.file_bytes = header.checksums_offset + 4 * blocks_of(header);
  header.checksum = checksum_of(header);
  return header;
}

std::uint64_t blocks_of(const Header& header) {
  return (header.checksums_offset - kFrontBytes + kBlockBytes - 1) / kBlockBytes;
}

std::optional<std::string> fault_of(std::string_view front, std::uint64_t file_bytes) {
  if (front.size() < sizeof(Header)) {
    return "it is truncated (" + std::to_string(file_bytes) + " bytes, less than a header)";
  }
  Header header;
  std::memcpy(&header, front.data(), sizeof header);
  if (std::string_view(header.magic, sizeof header.magic) != kMagic) {
    return "it is no prepared data, or its writer was stopped";
  }
  if (header.version != kVersion) return is_not("its version", header.version, kVersion);
  if (header.checksum != checksum_of(header)) return "its header does not match its checksum";
  if (const auto fault = fault_of_given(header)) return fault;
  const Header want = complete(header);
  const std::array<std::tuple<const char*, std::uint64_t, std::uint64_t>, 8> derived = {{
      {"its bytes an element", header.element_bytes, want.element_bytes},
      {"its fields a record", header.fields, want.fields},
      {"its offset of elements", header.elements_offset, want.elements_offset},
      {"its offset of the index", header.index_offset, want.index_offset},
      {"its offset of labels", header.labels_offset, want.labels_offset},
      {"its offset of checksums", header.checksums_offset, want.checksums_offset},
      {"its bytes a checksum", header.block_bytes, want.block_bytes},
      {"its announced length", header.file_bytes, want.file_bytes},
  }};
  for (const auto& [what, is, wanted] : derived) {
    if (is != wanted) return is_not(what, is, wanted);
  }
  if (file_bytes != header.file_bytes) {
    return std::string("it is ") + (file_bytes < header.file_bytes ? "truncated" : "too long") + " (want " +
           std::to_string(header.file_bytes) + " bytes, has " + std::to_string(file_bytes) + ")";
  }
  const auto filled = front.substr(sizeof header, kFrontBytes - sizeof header).find_first_not_of('\0');
  if (filled != std::string_view::npos) {
    return "byte " + std::to_string(sizeof header + filled) + " behind its header is not zero";
  }
  return std::nullopt;
}

std::string file_name(std::string_view split, std::uint64_t part) {
  char number[32];
  std::snprintf(number, sizeof number, "-%05llu.mdat", static_cast<unsigned long long>(part));
  return std::string(split) + number;
}

}  // namespace data::format
