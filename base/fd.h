#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>

namespace base {

/// An open file descriptor, closed with the object. -1: none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

/// How many descriptors a process may have open: RLIMIT_NOFILE.
struct OpenFiles {
  std::uint64_t soft = 0;  // what holds
  std::uint64_t hard = 0;  // what the process may raise it to
};

OpenFiles open_files_limit();

/// Raises the soft limit to the hard one, as far as the system lets it, and returns what was before. Programs that are
/// started later are to get that back (set_open_files): select(2) breaks beyond 1,024, and some programs close every
/// number up to the limit.
OpenFiles raise_open_files_limit();

/// Sets the soft limit, for programs that are started; 0 leaves it. Only a system call: fit for use after a fork.
void set_open_files(std::uint64_t soft);

}  // namespace base
