#include "data/format/format.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/fd.h"

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

namespace {

/// A file that is not there is damage of the data. Anything else may pass.
[[noreturn]] void fail_to(const char* what, const std::filesystem::path& path, int error) {
  const std::string text = "cannot " + std::string(what) + " " + path.string();
  if (error == ENOENT) throw std::runtime_error(text + ": " + std::strerror(error) + kRemedy);
  throw std::system_error(error, std::generic_category(), text);
}

std::string numbered(std::uint64_t record) {
  return "record " + std::to_string(record);
}

template <class Id>
bool all_below(std::string_view bytes, std::uint64_t vocabulary) {
  const auto* ids = reinterpret_cast<const Id*>(bytes.data());
  return std::all_of(ids, ids + bytes.size() / sizeof(Id), [=](Id id) { return id < vocabulary; });
}

}  // namespace

File File::open(const std::filesystem::path& path) {
  const base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) fail_to("open", path, errno);
  File file;
  file.path_ = path;
  if (!S_ISREG(status.st_mode)) file.fail("it is no regular file");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes == 0) file.fail("it is truncated (0 bytes, less than a header)");
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) fail_to("map", path, errno);
  file.map_ = static_cast<const char*>(map);
  file.map_bytes_ = bytes;
  if (const auto fault = fault_of(file.section(0, std::min<std::size_t>(bytes, kFrontBytes)), bytes)) file.fail(*fault);
  std::memcpy(&file.header_, map, sizeof file.header_);
  file.read_index();
  file.check_labels();
  return file;
}

File::File(File&& other) noexcept {
  *this = std::move(other);
}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  std::swap(header_, other.header_);
  std::swap(longest_, other.longest_);
  return *this;
}

File::~File() {
  if (map_ != nullptr) ::munmap(const_cast<char*>(map_), map_bytes_);
}

void File::fail(const std::string& why) const {
  throw std::runtime_error(path_.string() + ": " + why + kRemedy);
}

std::span<const std::uint64_t> File::index() const {
  return {reinterpret_cast<const std::uint64_t*>(map_ + header_.index_offset), header_.records * header_.fields + 1};
}

void File::read_index() {
  const auto starts = index();
  if (starts.front() != 0) fail("its index begins with element " + std::to_string(starts.front()) + ", not 0");
  for (std::size_t at = 1; at < starts.size(); ++at) {
    if (starts[at - 1] > starts[at]) fail("its index runs backwards at " + numbered((at - 1) / header_.fields));
  }
  if (starts.back() != header_.elements) {
    fail("its index ends with element " + std::to_string(starts.back()) + ", not " + std::to_string(header_.elements));
  }
  for (std::uint64_t record = 0; record < header_.records; ++record) {
    const std::uint64_t length = starts[(record + 1) * header_.fields] - starts[record * header_.fields];
    if (length > kMostInRecord) fail(numbered(record) + " has " + std::to_string(length) + " elements, over 2^31 - 1");
    longest_ = std::max(longest_, static_cast<std::int64_t>(length));
  }
}

void File::check_labels() const {
  if (label_bytes_of(kind()) == 0) return;
  const bool images = kind() == Kind::kImages;
  for (std::int64_t record = 0; record < records(); ++record) {
    if (label(record) < (images ? -1 : 0)) {
      fail(numbered(record) + " has the label " + std::to_string(label(record)));
    }
    if (!images) continue;
    const auto [height, width, unused] = image_label(record);
    const bool fits = height >= 1 && width >= 1 && height <= kMostSide && width <= kMostSide;
    if (!fits || length(record) != std::int64_t{3} * height * width) {
      fail(numbered(record) + " is an image of " + std::to_string(height) + " x " + std::to_string(width) +
           " pixels with " + std::to_string(length(record)) + " bytes");
    }
  }
}

void File::verify(std::uint64_t first_block, std::uint64_t count) const {
  if (first_block > blocks() || count > blocks() - first_block) {
    throw std::out_of_range(path_.string() + " has " + std::to_string(blocks()) + " blocks");
  }
  const auto* sums = reinterpret_cast<const std::uint32_t*>(checksums().data());
  for (std::uint64_t block = first_block; block < first_block + count; ++block) {
    const std::uint64_t begin = kFrontBytes + block * kBlockBytes;
    const std::uint64_t end = std::min(begin + kBlockBytes, header_.checksums_offset);
    if (base::crc32c(section(begin, end - begin)) != sums[block]) {
      fail("block " + std::to_string(block) + " (bytes " + std::to_string(begin) + " to " + std::to_string(end - 1) +
           ") does not match its checksum");
    }
    check_vocabulary(block);
    // Training touches few pages at a time. The pages that were read here need not count as this process's memory.
    ::madvise(const_cast<char*>(map_) + begin, end - begin, MADV_DONTNEED);
  }
}

void File::check_vocabulary(std::uint64_t block) const {
  if (kind() == Kind::kImages) return;
  const std::uint64_t begin = kFrontBytes + block * kBlockBytes;
  const std::uint64_t end = std::min(begin + kBlockBytes, kFrontBytes + header_.elements * header_.element_bytes);
  if (begin >= end) return;
  const auto ids = section(begin, end - begin);
  const bool below = header_.element_bytes == 4 ? all_below<std::uint32_t>(ids, header_.vocabulary)
                                                : all_below<std::uint16_t>(ids, header_.vocabulary);
  if (!below) {
    fail("block " + std::to_string(block) + " holds a token beyond the vocabulary of " +
         std::to_string(header_.vocabulary));
  }
}

base::Sha256::Digest File::tokenizer() const {
  return std::to_array(header_.tokenizer);
}

FileInfo File::info() const {
  FileInfo info;
  info.name = path_.filename().string();
  info.bytes = map_bytes_;
  info.records = records();
  info.elements = static_cast<std::int64_t>(header_.elements);
  info.longest = longest_;
  info.checksum = base::crc32c(checksums(), base::crc32c(header_bytes()));
  return info;
}

void File::check_record(std::int64_t record) const {
  if (record >= 0 && record < records()) return;
  throw std::out_of_range(path_.string() + " has no record " + std::to_string(record) + " of " +
                          std::to_string(records()));
}

Ids File::ids(std::int64_t record, std::int64_t field) const {
  check_record(record);
  if (kind() == Kind::kImages) throw std::logic_error(path_.string() + " holds images, not tokens");
  if (field < 0 || field >= fields()) {
    throw std::out_of_range(path_.string() + " has no field " + std::to_string(field) + " of " +
                            std::to_string(fields()));
  }
  const auto* start = index().data() + record * fields() + field;
  return {map_ + kFrontBytes + start[0] * header_.element_bytes, static_cast<std::int64_t>(start[1] - start[0]),
          header_.element_bytes == 4};
}

ImageLabel File::image_label(std::int64_t record) const {
  ImageLabel out;
  std::memcpy(&out, map_ + header_.labels_offset + static_cast<std::uint64_t>(record) * sizeof out, sizeof out);
  return out;
}

std::int32_t File::label(std::int64_t record) const {
  check_record(record);
  if (kind() == Kind::kImages) return image_label(record).label;
  if (kind() != Kind::kLabelled) return -1;
  std::int32_t out = 0;
  std::memcpy(&out, map_ + header_.labels_offset + static_cast<std::uint64_t>(record) * sizeof out, sizeof out);
  return out;
}

Image File::image(std::int64_t record) const {
  check_record(record);
  if (kind() != Kind::kImages) throw std::logic_error(path_.string() + " holds tokens, not images");
  const auto [height, width, unused] = image_label(record);
  const auto* begin = reinterpret_cast<const std::uint8_t*>(map_ + kFrontBytes) + index()[record];
  return {{begin, static_cast<std::size_t>(length(record))}, height, width};
}

std::int64_t File::length(std::int64_t record) const {
  check_record(record);
  const auto* start = index().data() + record * fields();
  return static_cast<std::int64_t>(start[fields()] - start[0]);
}

}  // namespace data::format
