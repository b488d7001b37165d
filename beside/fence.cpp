#include "beside/fence.h"

#include <fcntl.h>
#include <unistd.h>

#include <string_view>

#include "contract/fence_file.h"

namespace beside {

std::optional<std::uint32_t> read_fence(const std::filesystem::path& folder) {
  const int fd = ::open((folder / contract::kFenceFile).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  char buffer[64];
  const auto count = ::read(fd, buffer, sizeof buffer);
  ::close(fd);
  const auto attempt = contract::parse_fence({buffer, count > 0 ? static_cast<std::size_t>(count) : 0});
  if (!attempt || *attempt < 0 || *attempt > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*attempt);
}

}  // namespace beside
