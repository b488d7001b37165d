#include "data/format/writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/durable_file.h"

namespace data::format {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr int kMostOpens = 100;  // while other writers finish or give up the same file

template <class T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// True if `path` still names the open file. Another writer may have renamed it between our open() and our lock.
bool names(const std::filesystem::path& path, int fd) {
  struct stat named {
  }, opened{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
         named.st_dev == opened.st_dev;
}

std::filesystem::path part_of(const std::filesystem::path& path) {
  auto part = path;
  return part += ".part";
}

}  // namespace

Writer::Writer(std::filesystem::path path, Kind kind, std::uint64_t vocabulary, const base::Sha256::Digest& tokenizer)
    : path_(std::move(path)), part_(part_of(path_)) {
  const bool images = kind == Kind::kImages;
  if (images ? vocabulary != 0 : vocabulary < 1 || vocabulary > kMostVocabulary) {
    refuse("the vocabulary of " + std::string(name_of(kind)) + " is " + std::to_string(vocabulary));
  }
  if (images && tokenizer != base::Sha256::Digest{}) refuse("images have no tokenizer");
  header_.kind = static_cast<std::uint32_t>(kind);
  header_.vocabulary = vocabulary;
  header_.element_bytes = element_bytes_of(kind, vocabulary);
  header_.fields = fields_of(kind);
  std::copy(tokenizer.begin(), tokenizer.end(), header_.tokenizer);
  open_part();
  buffer_.reserve(kBufferBytes);
}

Writer::~Writer() {
  if (fd_) ::unlink(part_.c_str());
}

void Writer::open_part() {
  for (int opens = 0; !fd_ || !names(part_, fd_.get()); ++opens) {
    // Not truncated yet: the file may be another writer's.
    fd_ = base::Fd(::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd_) fail("create", errno);
    const bool held = ::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (held || opens == kMostOpens) {
      fd_.reset();
      throw std::system_error(EBUSY, std::generic_category(),
                              part_.string() + ": another process writes it; wait for its end, or end it");
    }
  }
  if (::ftruncate(fd_.get(), 0) != 0 || ::ftruncate(fd_.get(), kFrontBytes) != 0 ||
      ::lseek(fd_.get(), kFrontBytes, SEEK_SET) < 0) {
    fail("write", errno);
  }
}

void Writer::refuse(const std::string& why) const {
  throw std::invalid_argument(path_.string() + ", record " + std::to_string(header_.records) + ": " + why);
}

void Writer::fail(const char* what, int error) const {
  throw std::system_error(error, std::generic_category(), "cannot " + std::string(what) + " " + part_.string());
}

void Writer::check_room(std::uint64_t more) const {
  if (!fd_) throw std::logic_error(path_.string() + " is finished");
  if (more > kMostInRecord) refuse("it has " + std::to_string(more) + " elements, over 2^31 - 1");
  if (header_.records >= kMostRecords) refuse("a file takes 2^40 records");
  if (header_.elements + more > kMostElements) refuse("a file takes 2^46 elements");
}

void Writer::add(std::span<const std::span<const std::uint32_t>> fields, std::int32_t label) {
  const Kind kind{header_.kind};
  if (kind == Kind::kImages) refuse("it has tokens, and the file holds images");
  if (fields.size() != header_.fields) {
    refuse("it has " + std::to_string(fields.size()) + " fields, not " + std::to_string(header_.fields));
  }
  if (kind == Kind::kLabelled ? label < 0 : label != -1) {
    refuse("a record of " + std::string(name_of(kind)) + " has the label " + std::to_string(label));
  }
  std::uint64_t length = 0;
  for (const auto ids : fields) {
    length += ids.size();
    const auto beyond = std::find_if(ids.begin(), ids.end(), [&](auto id) { return id >= header_.vocabulary; });
    if (beyond != ids.end()) {
      refuse("token " + std::to_string(*beyond) + " is beyond the vocabulary of " + std::to_string(header_.vocabulary));
    }
  }
  check_room(length);
  for (const auto ids : fields) {
    if (header_.element_bytes == 4) {
      append({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
    } else {
      const std::vector<std::uint16_t> narrow(ids.begin(), ids.end());
      append(bytes_of(narrow));
    }
    header_.elements += ids.size();
    starts_.push_back(header_.elements);
  }
  if (kind == Kind::kLabelled) labels_ += bytes_of(label);
  count_record(length);
}

void Writer::add(const Image& image, std::int32_t label) {
  if (Kind{header_.kind} != Kind::kImages) refuse("it is an image, and the file holds tokens");
  const auto sides = std::to_string(image.height) + " x " + std::to_string(image.width) + " pixels";
  if (std::min(image.height, image.width) < 1 || std::max(image.height, image.width) > kMostSide) {
    refuse("an image of " + sides);
  }
  const std::uint64_t length =
      std::uint64_t{3} * static_cast<unsigned>(image.height) * static_cast<unsigned>(image.width);
  if (image.rgb.size() != length)
    refuse("an image of " + sides + " with " + std::to_string(image.rgb.size()) + " bytes");
  if (label < -1) refuse("an image has the label " + std::to_string(label));
  check_room(length);
  append({reinterpret_cast<const char*>(image.rgb.data()), image.rgb.size()});
  header_.elements += length;
  starts_.push_back(header_.elements);
  labels_ +=
      bytes_of(ImageLabel{static_cast<std::uint16_t>(image.height), static_cast<std::uint16_t>(image.width), label});
  count_record(length);
}

void Writer::count_record(std::uint64_t elements) {
  header_.records += 1;
  longest_ = std::max(longest_, elements);
}

void Writer::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::uint64_t in_block = (written_ - kFrontBytes) % kBlockBytes;
    const auto taken = std::min({bytes.size(), static_cast<std::size_t>(kBlockBytes - in_block), kBufferBytes});
    const auto some = bytes.substr(0, taken);
    block_sum_ = base::crc32c(some, block_sum_);
    if (in_block + taken == kBlockBytes) sums_.push_back(std::exchange(block_sum_, 0));
    if (buffer_.size() + taken > kBufferBytes) flush();
    buffer_ += some;
    written_ += taken;
    bytes.remove_prefix(taken);
  }
}

void Writer::fill_to_8() {
  append(std::string((8 - written_ % 8) % 8, '\0'));
}

void Writer::flush() {
  for (std::string_view rest = buffer_; !rest.empty();) {
    const ssize_t wrote = ::write(fd_.get(), rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("write", errno);
    rest.remove_prefix(static_cast<std::size_t>(wrote));
  }
  buffer_.clear();
}

FileInfo Writer::finish() {
  if (!fd_) throw std::logic_error(path_.string() + " is finished");
  const Header header = complete(header_);
  fill_to_8();
  append(bytes_of(starts_));
  append(labels_);
  fill_to_8();
  if ((written_ - kFrontBytes) % kBlockBytes != 0) sums_.push_back(block_sum_);
  const auto sums = bytes_of(sums_);
  flush();
  buffer_ = sums;
  flush();
  if (::pwrite(fd_.get(), &header, sizeof header, 0) != sizeof header) fail("write", errno);
  if (::fsync(fd_.get()) != 0) fail("sync", errno);
  if (::rename(part_.c_str(), path_.c_str()) != 0) fail("rename", errno);
  fd_.reset();
  base::sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");

  FileInfo info;
  info.name = path_.filename().string();
  info.bytes = header.file_bytes;
  info.records = static_cast<std::int64_t>(header.records);
  info.elements = static_cast<std::int64_t>(header.elements);
  info.longest = static_cast<std::int64_t>(longest_);
  info.checksum = base::crc32c(sums, base::crc32c(bytes_of(header).substr(0, offsetof(Header, checksum))));
  return info;
}

std::optional<FileInfo> finished_file(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  const File file = File::open(path);
  file.verify();
  return file.info();
}

}  // namespace data::format
