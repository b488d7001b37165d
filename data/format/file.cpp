#include "data/format/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/checksum.h"
#include "base/fd.h"

namespace data::format {
namespace {

/// A file that is not there is damage of the data. Anything else may pass.
[[noreturn]] void fail_to(const char* what, const std::filesystem::path& path, int error) {
  const std::string text = "cannot " + std::string(what) + " " + path.string();
  if (error == ENOENT)
    throw std::runtime_error(text + ": " + std::strerror(error) + "; remove the folder and prepare the data again");
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
  throw std::runtime_error(path_.string() + ": " + why + "; remove the folder and prepare the data again");
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
