#include "fsdp/files/durable.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fsdp {

namespace fs = std::filesystem;

void sync_path(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  const bool done = fd >= 0 && ::fsync(fd) == 0;
  const int cause = errno;
  if (fd >= 0) ::close(fd);
  TORCH_CHECK(done, "cannot flush ", path.string(), " to disk: ", std::strerror(cause));
}

void sync_parents(const fs::path& path) {
  for (fs::path above = fs::absolute(path).lexically_normal(); above.has_relative_path();) {
    above = above.parent_path();
    const int fd = ::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) continue;
    ::fsync(fd);
    ::close(fd);
  }
}

void write_text(const fs::path& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  TORCH_CHECK(fd >= 0, "cannot create ", path.string(), ": ", std::strerror(errno));
  std::size_t done = 0;
  while (done < text.size()) {
    const ::ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  const bool whole = done == text.size() && ::fsync(fd) == 0;
  const int cause = errno;
  ::close(fd);
  TORCH_CHECK(whole, "cannot write ", path.string(), ": ", std::strerror(cause));
}

bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

fs::path publish_folder(const fs::path& from, const fs::path& to) {
  if (!fs::exists(to)) {
    fs::rename(from, to);
    return {};
  }
  if (exchange(from, to)) return from;
  // This file system cannot exchange names. For a moment no folder is at `to`. The name is one that those who remove
  // leftovers find, in case the process ends before the folder is removed.
  const fs::path aside = from.parent_path() / (kTemporaryPrefix + std::string("replaced") + from.filename().string());
  fs::rename(to, aside);
  fs::rename(from, to);
  return aside;
}

}  // namespace fsdp
