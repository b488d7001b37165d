#pragma once

#include <cstdint>
#include <string>

namespace net {

/// "host:port" or "[v6]:port", as given to --listen.
struct ListenAddress {
  std::string host;  // without brackets
  std::uint16_t port = 0;
  std::string text() const;
  /// Reachable from this machine alone: 127.0.0.0/8, ::1 or localhost.
  bool is_loopback() const;
};

/// Throws std::invalid_argument that quotes the text and says what is wanted.
ListenAddress parse_listen_address(const std::string& text);

}  // namespace net
