#include "store/sqlite_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "store/store.h"

namespace store {

namespace {

constexpr std::chrono::milliseconds kPatience{1000}, kPause{20};

std::string owner(int descriptor) {
  std::array<char, 32> text{};
  const ssize_t length = pread(descriptor, text.data(), text.size() - 1, 0);
  const long pid = length > 0 ? std::strtol(text.data(), nullptr, 10) : 0;
  return pid > 0 ? "process " + std::to_string(pid) : "another process";
}

/// Takes the lock. Returns 0 or the errno. If the musterd before was killed between fork and exec, its child holds the
/// lock for a moment longer, so this waits up to kPatience.
int take(int descriptor) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + kPatience;
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR && (errno != EWOULDBLOCK || Clock::now() >= until)) return errno;
    std::this_thread::sleep_for(kPause);
  }
  return 0;
}

Error cannot_open(const std::filesystem::path& file, int error) {
  const std::string folder = file.parent_path().string();
  if (error == EROFS || error == EACCES || error == EPERM) {
    return Error(Error::Kind::kFull, folder + " cannot be written (" + std::strerror(error) +
                                         "): make it writable for this user, or use another data folder");
  }
  if (error == ENOSPC || error == EDQUOT) {
    return Error(Error::Kind::kFull, "the disk of " + folder + " is full (" + std::strerror(error) + "): free space");
  }
  return Error(Error::Kind::kOther, "cannot open " + file.string() + " (" + std::strerror(error) +
                                        "): the data folder must exist and belong to this user");
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& file, const std::filesystem::path& what)
    : lock_(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  if (!lock_) throw cannot_open(file, errno);
  if (const int error = take(lock_.get()); error != 0) {
    if (error == EWOULDBLOCK) {
      throw Error(Error::Kind::kInUse, what.string() + " is in use by " + owner(lock_.get()) +
                                           ": stop that musterd first, or use another data folder");
    }
    throw Error(Error::Kind::kOther, "cannot lock " + file.string() + " (" + std::strerror(error) +
                                         "): its file system must support flock(2)");
  }
  // The pid is only for messages. If the disk is full and the pid cannot be written, the lock still holds.
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(lock_.get(), 0) != 0 || pwrite(lock_.get(), pid.data(), pid.size(), 0) < 0) return;
}

}  // namespace store
