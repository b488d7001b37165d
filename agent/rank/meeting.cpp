#include "agent/rank/meeting.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <stdexcept>

namespace agent::rank {

std::string to_string(const Endpoint& endpoint) {
  const bool brackets = endpoint.host.find(':') != std::string::npos;
  return (brackets ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

Endpoint parse_endpoint(std::string_view text) {
  const auto refuse = [&]() -> Endpoint {
    throw std::invalid_argument("\"" + std::string(text) +
                                "\" is not an address: want host:port with a port in 1..65535, such as 127.0.0.1:7077");
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return refuse();
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return refuse();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse();
  }
  int port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port < 1 || port > 65535) return refuse();
  return {std::string(host), static_cast<std::uint16_t>(port)};
}

namespace {

/// The local address the kernel picks for a UDP socket connected to `peer`; empty when there is no route.
std::string route_source(const addrinfo& peer) {
  const int fd = ::socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  std::string found;
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  char name[NI_MAXHOST];
  if (::connect(fd, peer.ai_addr, peer.ai_addrlen) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0) {
    found = name;
  }
  ::close(fd);
  return found;
}

}  // namespace

std::string own_address_towards(const Endpoint& peer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  std::string found;
  if (::getaddrinfo(peer.host.c_str(), std::to_string(peer.port).c_str(), &hints, &list) == 0) {
    for (const addrinfo* one = list; one != nullptr && found.empty(); one = one->ai_next) found = route_source(*one);
    ::freeaddrinfo(list);
  }
  return found.empty() ? "127.0.0.1" : found;
}

}  // namespace agent::rank
