#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace net {

/// An address as IPv6. An IPv4 address is "::ffff:a.b.c.d".
using Address = std::array<std::uint8_t, 16>;

/// One end of a connection.
struct End {
  Address address{};
  std::uint16_t port = 0;
};

/// The other end, and this end, of an open socket; nullopt: the peer is gone already.
std::optional<End> peer_of(int socket);
std::optional<End> here_of(int socket);

/// The kernel's number for this socket, which no other socket ever gets; 0: not an open socket.
std::uint64_t cookie_of(int socket);

/// "10.0.0.7" or "fe80::1".
std::string text_of(const Address& address);

/// Reads the text of text_of() as an address; nullopt: the text is none.
std::optional<Address> address_of(const std::string& text);

/// Who belongs together: one IPv4 address, or an IPv6 network of 64 bits, since one machine may have all of it.
Address network_of(const Address& address);

/// "host:port" or "[v6]:port", as given to --listen.
struct ListenAddress {
  std::string host;  // without brackets
  std::uint16_t port = 0;
  std::string text() const;
  /// True if only this machine can connect: 127.0.0.0/8, ::1 or localhost.
  bool is_loopback() const;
};

/// Throws std::invalid_argument with a message that quotes the text and shows the right form.
ListenAddress parse_listen_address(const std::string& text);

}  // namespace net
