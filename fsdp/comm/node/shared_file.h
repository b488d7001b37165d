#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

namespace fsdp::node {

/// An owned file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Pages of a shared file in this process. Data in them outlives the file's owner while the mapping lives.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* start, std::size_t bytes) : start_(static_cast<char*>(start)), bytes_(bytes) {}
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  char* start() const { return start_; }
  std::size_t bytes() const { return bytes_; }

 private:
  char* start_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A file in memory without a name. The kernel frees it with its last user, however that user ends. It takes no room
/// in /dev/shm, and memory only where it was written.
class SharedFile {
 public:
  /// Bytes of address space in a file: more than a rank's memory, because the file has holes.
  static constexpr std::int64_t kBytes = std::int64_t{1} << 42;

  /// Throws c10::Error with the kernel's reason.
  static SharedFile create();
  /// The file of a process of the same user that has it open as `fd`. Throws c10::Error with the kernel's reason.
  static SharedFile open(pid_t pid, int fd);

  Mapping map(std::int64_t offset, std::int64_t bytes, bool writable) const;
  /// Gives the pages back to the kernel. They read as zeros afterwards, for every process.
  void discard(std::int64_t offset, std::int64_t bytes) const;
  int descriptor() const { return file_.get(); }

 private:
  explicit SharedFile(int fd) : file_(fd) {}
  Descriptor file_;
};

/// Rounds up to whole pages.
std::int64_t whole_pages(std::int64_t bytes);

}  // namespace fsdp::node
