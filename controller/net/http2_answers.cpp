#include "controller/net/http2_answers.h"

namespace net {
namespace {

constexpr std::size_t kMostText = 1000;
constexpr char kHeaders = 1, kSettings = 4, kGoAway = 7;
constexpr char kEndStream = 1, kEndHeaders = 4;

std::string big_endian(std::uint32_t value, int bytes) {
  std::string out;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xFF);
  return out;
}

std::string frame(char kind, int flags, std::uint32_t stream, std::string_view payload) {
  return big_endian(static_cast<std::uint32_t>(payload.size()), 3) + kind + static_cast<char>(flags) +
         big_endian(stream, 4) + std::string(payload);
}

/// A text of HPACK, without Huffman's code.
std::string hpack_text(std::string_view text) {
  constexpr std::size_t kFull = 127;
  std::string out;
  if (text.size() < kFull) {
    out += static_cast<char>(text.size());
  } else {
    out += static_cast<char>(kFull);
    auto left = text.size() - kFull;
    for (; left >= 128; left /= 128) out += static_cast<char>(left % 128 + 128);
    out += static_cast<char>(left);
  }
  return out + std::string(text);
}

/// The text as gRPC wants it in a header: printable ASCII, all else in percents.
std::string percent_encoded(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F && c != '%') {
      out += c;
    } else {
      out += std::string("%") + kHex[byte >> 4] + kHex[byte & 15];
    }
  }
  return out;
}

/// A header whose name is not in the static table.
std::string named(std::string_view name, std::string_view value) {
  return std::string(1, '\0') + hpack_text(name) + hpack_text(value);
}

/// A header whose name has this index in the static table, from 15 on.
std::string indexed(int name, std::string_view value) {
  return std::string{'\x0F', static_cast<char>(name - 15)} + hpack_text(value);
}
constexpr int kAuthorization = 23, kContentType = 31;

std::string goaway(std::uint32_t last_stream, std::string_view why) {
  return frame(kGoAway, 0, 0, big_endian(last_stream, 4) + big_endian(0, 4) + std::string(why));
}

}  // namespace

std::string http2_greeting(std::uint32_t most_streams) {
  constexpr std::uint32_t kMaxConcurrentStreams = 3;
  return frame(kSettings, 0, 0, big_endian(kMaxConcurrentStreams, 2) + big_endian(most_streams, 4));
}

std::string http2_refusal(std::uint32_t stream, int status, std::string_view text) {
  constexpr char kStatus200 = '\x88';
  const auto block = kStatus200 + indexed(kContentType, "application/grpc") +
                     named("grpc-status", std::to_string(status)) +
                     named("grpc-message", percent_encoded(text.substr(0, kMostText)));
  return frame(kHeaders, kEndStream | kEndHeaders, stream, block) + goaway(stream, "");
}

std::string http2_goodbye(std::string_view why) {
  return goaway(0, why);
}

std::string http2_call(std::string_view path, std::string_view token) {
  constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  constexpr char kPost = '\x83', kHttp = '\x86', kPath = 4, kAuthority = 1;  // the latter two: literals follow
  const auto block = std::string{kPost, kHttp, kPath} + hpack_text(path) + kAuthority + hpack_text("musterd") +
                     indexed(kContentType, "application/grpc") + named("te", "trailers") +
                     indexed(kAuthorization, "Bearer " + std::string(token));
  return std::string(kPreface) + frame(kSettings, 0, 0, "") + frame(kHeaders, kEndStream | kEndHeaders, 1, block);
}

Http2Answer http2_answer_in(std::string_view said) {
  constexpr std::size_t kFrameHeader = 9;
  for (bool is_first = true; said.size() >= kFrameHeader; is_first = false) {
    std::size_t size = 0;
    for (const char c : said.substr(0, 3)) size = size << 8 | static_cast<unsigned char>(c);
    const char kind = said[3];
    if (kind == kHeaders && !is_first) return Http2Answer::kHeaders;
    if (kind == kGoAway || (is_first && kind != kSettings)) return Http2Answer::kNone;
    if (said.size() < kFrameHeader + size) return Http2Answer::kMore;
    said.remove_prefix(kFrameHeader + size);
  }
  return Http2Answer::kMore;
}

}  // namespace net
