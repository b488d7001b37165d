#include "agent/watch/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace agent::watch {

FilePart read_part(const std::filesystem::path& file, std::uint64_t offset, std::size_t most) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return {};
  FilePart part;
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) part.size = static_cast<std::uint64_t>(status.st_size);
  if (part.size > offset) {
    part.bytes.resize(std::min<std::uint64_t>(most, part.size - offset));
    const auto count = ::pread(fd, part.bytes.data(), part.bytes.size(), static_cast<off_t>(offset));
    part.bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  }
  ::close(fd);
  return part;
}

}  // namespace agent::watch
