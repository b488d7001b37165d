#pragma once

#include <cstdint>
#include <string>

namespace net {

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
