#include "controller/net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/numbers.h"

namespace net {
namespace {

constexpr std::size_t kIpv4Prefix = 12;
constexpr Address kIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

bool is_ipv4(const Address& address) {
  return std::equal(address.begin(), address.begin() + kIpv4Prefix, kIpv4.begin());
}

std::optional<End> end_of(int socket, int (*read)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage end{};
  socklen_t size = sizeof end;
  if (read(socket, reinterpret_cast<sockaddr*>(&end), &size) != 0) return std::nullopt;
  Address address = kIpv4;
  if (end.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(end);
    std::memcpy(address.data(), &v6.sin6_addr, address.size());
    return End{address, ntohs(v6.sin6_port)};
  }
  if (end.ss_family != AF_INET) return std::nullopt;
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(end);
  std::memcpy(address.data() + kIpv4Prefix, &v4.sin_addr, 4);
  return End{address, ntohs(v4.sin_port)};
}

}  // namespace

std::optional<End> peer_of(int socket) {
  return end_of(socket, ::getpeername);
}

std::optional<End> here_of(int socket) {
  return end_of(socket, ::getsockname);
}

std::uint64_t cookie_of(int socket) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

std::string text_of(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_ipv4(address)) {
    ::inet_ntop(AF_INET, address.data() + kIpv4Prefix, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, address.data(), text, sizeof text);
  }
  return text;
}

std::optional<Address> address_of(const std::string& text) {
  const auto v6 = (text.find(':') == std::string::npos ? "::ffff:" : "") + text;
  Address address{};
  if (::inet_pton(AF_INET6, v6.c_str(), address.data()) != 1) return std::nullopt;
  return address;
}

Address network_of(const Address& address) {
  constexpr std::ptrdiff_t kNetwork = 8;
  if (is_ipv4(address)) return address;
  Address network{};
  std::copy_n(address.begin(), kNetwork, network.begin());
  return network;
}

std::string ListenAddress::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool ListenAddress::is_loopback() const {
  boost::system::error_code not_numeric;
  const auto address = boost::asio::ip::make_address(host, not_numeric);
  return host == "localhost" || (!not_numeric && address.is_loopback());
}

ListenAddress parse_listen_address(const std::string& text) {
  const auto fail = [&] {
    return std::invalid_argument("\"" + text +
                                 "\": want host:port such as 127.0.0.1:7600; port 0 lets the system choose");
  };
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) throw fail();
  ListenAddress out;
  out.host = text.substr(0, colon);
  const bool bracketed = out.host.front() == '[' && out.host.back() == ']';
  if (bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  if (out.host.empty() || (!bracketed && out.host.find(':') != std::string::npos)) throw fail();
  const auto port = base::whole_number<std::uint16_t>(std::string_view(text).substr(colon + 1));
  if (!port) throw fail();
  out.port = *port;
  return out;
}

}  // namespace net
