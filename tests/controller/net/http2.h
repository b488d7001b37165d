#pragma once

#include <cstdint>
#include <string>

namespace net::testing {

/// One HTTP/2 frame. Kinds: 0 DATA, 1 HEADERS, 3 RST_STREAM, 4 SETTINGS, 6 PING, 7 GOAWAY, 8 WINDOW_UPDATE.
inline std::string frame(int kind, int flags, std::uint32_t stream, const std::string& payload) {
  std::string out;
  for (int shift = 16; shift >= 0; shift -= 8) out += static_cast<char>(payload.size() >> shift & 0xFF);
  out += static_cast<char>(kind);
  out += static_cast<char>(flags);
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(stream >> shift & 0xFF);
  return out + payload;
}

/// The bytes that a client sends first.
inline const std::string kHello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "");

inline std::string hpack_text(const std::string& text) {
  return static_cast<char>(text.size()) + text;
}

/// The headers of a call, without Huffman's code. `token` empty: without a token. `user` empty: without one.
inline std::string headers(std::uint32_t stream, const std::string& path, const std::string& token,
                           const std::string& user = "") {
  auto block = std::string("\x83\x86\x04") + hpack_text(path) + "\x01" + hpack_text("musterd") + "\x0F\x10" +
               hpack_text("application/grpc") + std::string(1, '\0') + hpack_text("te") + hpack_text("trailers");
  if (!token.empty()) block += "\x0F\x08" + hpack_text("Bearer " + token);
  if (!user.empty()) block += std::string(1, '\0') + hpack_text("muster-user") + hpack_text(user);
  return frame(1, 4, stream, block);
}

/// A whole message of a call, which ends the stream.
inline std::string data(std::uint32_t stream, const std::string& message) {
  std::string prefix(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) prefix += static_cast<char>(message.size() >> shift & 0xFF);
  return frame(0, 1, stream, prefix + message);
}

}  // namespace net::testing
