#include "fsdp/files/durable.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace fsdp {

namespace fs = std::filesystem;

namespace {

/// Exchanges two names in one step. Returns false where the file system cannot, with the cause in errno.
bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

void sync_path(const fs::path& path, int flags) {
  const base::Fd fd(::open(path.c_str(), flags | O_CLOEXEC));
  TORCH_CHECK(fd && ::fsync(fd.get()) == 0, "cannot flush ", path.string(), " to disk: ", std::strerror(errno));
}

void sync_parents(const fs::path& path) {
  for (fs::path above = fs::absolute(path).lexically_normal(); above.has_relative_path();) {
    above = above.parent_path();
    if (const base::Fd fd(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); fd) ::fsync(fd.get());
  }
}

void write_text(const fs::path& path, const std::string& text) {
  const base::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  TORCH_CHECK(fd, "cannot create ", path.string(), ": ", std::strerror(errno));
  std::size_t done = 0;
  while (done < text.size()) {
    const ::ssize_t wrote = ::write(fd.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  TORCH_CHECK(done == text.size() && ::fsync(fd.get()) == 0, "cannot write ", path.string(), ": ",
              std::strerror(errno));
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

std::optional<Identity> identity_of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return Identity{info.st_dev, info.st_ino};
}

void withdraw_folder(const fs::path& from, const fs::path& to, const fs::path& before,
                     const std::optional<Identity>& own) {
  if (identity_of(to) != own) return;
  if (before == from) {
    TORCH_CHECK(exchange(from, to), "cannot put back ", to.string(), ": ", std::strerror(errno));
    if (identity_of(from) != own) exchange(from, to);
    return;
  }
  fs::rename(to, from);
  if (identity_of(from) != own) {
    fs::rename(from, to);
  } else if (!before.empty()) {
    fs::rename(before, to);
  }
}

}  // namespace fsdp
