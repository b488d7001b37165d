#include "beside/fence.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <string_view>
#include <system_error>

namespace beside {

std::optional<std::uint32_t> read_fence(const std::filesystem::path& folder) {
  const int fd = ::open((folder / "FENCE").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  char buffer[64];
  const auto count = ::read(fd, buffer, sizeof buffer);
  ::close(fd);
  constexpr std::string_view kStart = "attempt ";
  const std::string_view text(buffer, count > 0 ? static_cast<std::size_t>(count) : 0);
  if (!text.starts_with(kStart)) return std::nullopt;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + kStart.size(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

}  // namespace beside
