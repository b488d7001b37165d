#include "data/token_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "data/hash.h"

namespace worker {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr char kMagic[8] = {'M', 'U', 'S', 'T', 'T', 'O', 'K', 'N'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kUint16 = 2;
constexpr std::size_t kHeaderBytes = 4096;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t dtype;
  std::uint64_t vocabulary;
  std::uint64_t count;
  std::uint64_t checksum;
  std::uint64_t description_bytes;
};
constexpr std::size_t kMostDescription = kHeaderBytes - sizeof(Header);

// Files next to <file>: <file>.lock, and <file>.tmp.<pid> while a process writes it.
constexpr const char* kLockSuffix = ".lock";
constexpr const char* kTemporaryMark = ".tmp.";
constexpr const char* kCachePrefix = "tokens-";
constexpr const char* kCacheSuffix = ".bin";

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& what, const std::string& path, const std::string& why) {
  throw std::runtime_error(what + " " + path + ": " + why);
}
[[noreturn]] void fail_errno(const std::string& what, const std::string& path) {
  fail(what, path, std::strerror(errno));
}

std::string_view as_bytes(std::span<const std::uint16_t> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
}

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno("cannot write the token file", path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Removes the temporary file unless it has been renamed.
struct Temporary {
  std::string path;
  ~Temporary() { ::unlink(path.c_str()); }
};

/// Waits for the lock; with LOCK_NB tries once. Returns false if the lock cannot be taken, as on some network file
/// systems.
bool take_lock(const Fd& file, int how) {
  if (file.get() < 0) return false;
  while (::flock(file.get(), how) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

/// Removes the temporary files of killed writers from the cache folder. A writer holds its target's lock while it
/// writes. So a temporary file belongs to no writer if its target's lock can be taken. `mine` is the target whose lock
/// this process holds.
void remove_leftovers(const std::string& folder, const std::string& mine) {
  std::error_code error;
  std::vector<std::string> leftovers;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    if (name.starts_with(kCachePrefix) && name.find(kTemporaryMark) != std::string::npos) {
      leftovers.push_back(entry->path().native());
    }
  }
  for (const std::string& leftover : leftovers) {
    const std::string target = leftover.substr(0, leftover.rfind(kTemporaryMark));
    const bool other = target != mine;
    const Fd lock(other ? ::open((target + kLockSuffix).c_str(), O_RDWR | O_CLOEXEC) : -1);
    if (!other || take_lock(lock, LOCK_EX | LOCK_NB)) ::unlink(leftover.c_str());
  }
}

/// The fault of the header; nullopt when the header fits a file of `file_bytes`.
std::optional<std::string> fault_in(const Header& header, std::size_t file_bytes) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return "it is no token file";
  if (header.version != kVersion) return "its version is " + std::to_string(header.version) + ", not 1";
  if (header.dtype != kUint16) return "its dtype is " + std::to_string(header.dtype) + ", not 2 (uint16)";
  if (header.description_bytes > kMostDescription) return "its description is too long";
  if (header.count > (file_bytes - kHeaderBytes) / 2 || kHeaderBytes + header.count * 2 != file_bytes) {
    return "it holds " + std::to_string(file_bytes) + " bytes where " + std::to_string(header.count) +
           " tokens were announced";
  }
  return std::nullopt;
}

/// The path of the token file for a source with this description.
std::string path_in(const std::string& cache_folder, const std::string& description) {
  char name[40];
  std::snprintf(name, sizeof name, "%s%016llx%s", kCachePrefix,
                static_cast<unsigned long long>(checksum_of(description)), kCacheSuffix);
  return (fs::path(cache_folder) / name).native();
}

std::string name_of(std::uint64_t count, std::uint64_t checksum) {
  return std::to_string(count) + " byte tokens, checksum " + std::to_string(checksum);
}

/// The fingerprint of the tokens according to the file's header; empty when the header cannot be read.
std::string fingerprint_in(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Header header;
  if (fd.get() < 0 || ::pread(fd.get(), &header, sizeof header, 0) != sizeof header) return {};
  return name_of(header.count, header.checksum);
}

}  // namespace

std::string TokenFile::fingerprint() const {
  return name_of(tokens_.size(), checksum_);
}

bool TokenFile::made_from(const TextSource& source) const {
  return description_ == source.description.substr(0, kMostDescription);
}

TokenFile TokenFile::open(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0) fail_errno("cannot open the token file", path);
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < kHeaderBytes) fail("the token file", path, "is damaged: it is shorter than its header");

  TokenFile out;
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) fail_errno("cannot map the token file", path);
  out.map_ = map;
  out.map_bytes_ = bytes;
  Header header;
  std::memcpy(&header, map, sizeof header);
  if (const auto fault = fault_in(header, bytes)) fail("the token file", path, "is damaged: " + *fault);
  const auto* start = static_cast<const char*>(map);
  out.description_.assign(start + sizeof header, header.description_bytes);
  out.tokens_ = {reinterpret_cast<const std::uint16_t*>(start + kHeaderBytes), header.count};
  out.vocabulary_ = static_cast<std::int64_t>(header.vocabulary);
  out.checksum_ = header.checksum;
  if (checksum_of(as_bytes(out.tokens_)) != header.checksum) {
    fail("the token file", path, "is damaged: the tokens do not fit their checksum");
  }
  for (const auto token : out.tokens_) {
    if (token >= header.vocabulary) fail("the token file", path, "is damaged: a token is beyond the vocabulary");
  }
  // Training touches few pages at a time. The pages that the check has read need not count as this process's memory.
  ::madvise(map, bytes, MADV_DONTNEED);
  return out;
}

void TokenFile::write(const std::string& path, const TextSource& source) {
  const Temporary temporary{path + kTemporaryMark + std::to_string(::getpid())};
  const Fd fd(::open(temporary.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) fail_errno("cannot create the token file", temporary.path);
  write_all(fd.get(), std::string(kHeaderBytes, '\0'), path);

  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.dtype = kUint16;
  header.vocabulary = kByteVocabulary;
  const std::string description = source.description.substr(0, kMostDescription);
  header.description_bytes = description.size();
  Checksum sum;
  source.read([&](std::string_view text) {
    std::vector<std::uint16_t> tokens;
    tokens.reserve(text.size() + 1);
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    tokens.push_back(kSeparatorToken);
    write_all(fd.get(), as_bytes(tokens), path);
    sum.add(as_bytes(tokens));
    header.count += tokens.size();
  });
  header.checksum = sum.value();

  std::string front(kHeaderBytes, '\0');
  std::memcpy(front.data(), &header, sizeof header);
  std::memcpy(front.data() + sizeof header, description.data(), description.size());
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) fail_errno("cannot write the token file", path);
  write_all(fd.get(), front, path);
  if (::fsync(fd.get()) != 0) fail_errno("cannot write the token file", path);
  if (::rename(temporary.path.c_str(), path.c_str()) != 0) fail_errno("cannot rename the token file to", path);
}

TokenFile::TokenFile(TokenFile&& other) noexcept {
  *this = std::move(other);
}

TokenFile& TokenFile::operator=(TokenFile&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  std::swap(tokens_, other.tokens_);
  std::swap(vocabulary_, other.vocabulary_);
  std::swap(checksum_, other.checksum_);
  std::swap(description_, other.description_);
  return *this;
}

TokenFile::~TokenFile() {
  if (map_ != nullptr) ::munmap(map_, map_bytes_);
}

TokenFile open_or_build_tokens(const TextSource& source, const std::string& cache_folder) {
  std::error_code error;
  fs::create_directories(cache_folder, error);
  if (error) fail("cannot create the cache folder", cache_folder, error.message() + "; set data.cache_folder");
  const std::string path = path_in(cache_folder, source.description);

  // The kernel releases the lock when its holder dies, so a dead writer never blocks the others.
  const Fd lock(::open((path + kLockSuffix).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (take_lock(lock, LOCK_EX)) remove_leftovers(cache_folder, path);
  if (fs::exists(path, error)) {
    try {
      TokenFile found = TokenFile::open(path);
      if (found.made_from(source)) return found;
    } catch (const std::runtime_error& fault) {
      std::fprintf(stderr, "warning: %s; it is built again\n", fault.what());
    }
  }
  TokenFile::write(path, source);
  return TokenFile::open(path);
}

std::optional<TokenFile> find_tokens(const std::string& fingerprint, const std::string& cache_folder,
                                     const std::string& description) {
  std::vector<std::string> candidates = {path_in(cache_folder, description)};
  std::error_code error;
  for (fs::directory_iterator entry(cache_folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.filename().native().starts_with(kCachePrefix) && path.extension() == kCacheSuffix) {
      candidates.push_back(path.native());
    }
  }
  for (const std::string& path : candidates) {
    if (fingerprint_in(path) != fingerprint) continue;
    try {
      return TokenFile::open(path);
    } catch (const std::runtime_error& fault) {
      std::fprintf(stderr, "warning: %s; it is passed over\n", fault.what());
    }
  }
  return std::nullopt;
}

std::string default_cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::string(cache) + "/muster";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::string(home) + "/.cache/muster";
  }
  return (fs::temp_directory_path() / ("muster-" + std::to_string(::getuid()))).native();
}

}  // namespace worker
