#include "controller/executors/local/port_picker.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/fd.h"
#include "base/room.h"

namespace executors::local {
namespace {

constexpr std::uint16_t kLowest = 10000;  // well-known services live below
constexpr std::uint16_t kFew = 256;       // a range smaller than this is not worth having

/// The larger of the two parts beside the ephemeral range; all of it if it leaves next to nothing.
PortPicker::Range outside(PortPicker::Range ephemeral) {
  const int below = int{ephemeral.first} - kLowest;
  const int above = 65535 - int{ephemeral.second};
  if (below >= above && below >= kFew) return {kLowest, static_cast<std::uint16_t>(ephemeral.first - 1)};
  if (above >= kFew) return {static_cast<std::uint16_t>(ephemeral.second + 1), 65535};
  return {kLowest, 65535};
}

bool is_free(std::uint16_t port) {
  const base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // No port is to blame for that, and every other would fail the same way.
  if (!socket && base::lacks_room(errno))
    throw std::system_error(errno, std::generic_category(), "cannot look for a port");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  return socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

PortPicker::PortPicker(std::uint32_t seed, Range ephemeral) : candidates_(outside(ephemeral)), next_(seed) {}

std::uint16_t PortPicker::take(const core::AttemptKey& key) {
  std::lock_guard lock(mutex_);
  const std::uint32_t count = std::uint32_t{candidates_.second} - candidates_.first + 1;
  for (std::uint32_t tried = 0; tried < count; ++tried) {
    const auto port = static_cast<std::uint16_t>(candidates_.first + next_++ % count);
    const bool used = std::ranges::any_of(of_, [&](const auto& entry) { return entry.second == port; });
    if (!used && is_free(port)) return of_[key] = port;
  }
  throw std::system_error(EADDRINUSE, std::generic_category(), "no free TCP port for MASTER_PORT");
}

void PortPicker::keep(const core::AttemptKey& key, std::uint16_t port) {
  std::lock_guard lock(mutex_);
  of_[key] = port;
}

void PortPicker::give_back(const core::AttemptKey& key) {
  std::lock_guard lock(mutex_);
  of_.erase(key);
}

PortPicker::Range PortPicker::ephemeral_range() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  Range range{32768, 60999};
  std::uint16_t first = 0, last = 0;
  if (file >> first >> last && first <= last) range = {first, last};
  return range;
}

}  // namespace executors::local
