#include "agent/watch/fence.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>

namespace agent::watch {

std::optional<protocol::Fence> read_fence(const std::filesystem::path& folder) {
  const int fd = ::open((folder / protocol::kFenceFile).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  char buffer[64];
  const auto count = ::read(fd, buffer, sizeof buffer);
  ::close(fd);
  return protocol::parse_fence({buffer, count > 0 ? static_cast<std::size_t>(count) : 0});
}

}  // namespace agent::watch
