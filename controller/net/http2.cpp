#include "controller/net/http2.h"

#include <array>

namespace net {
namespace {

/// RFC 7541, appendix A: names and values. The first entry has index 1.
constexpr std::string_view kStaticText =
    ":authority=|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http|:scheme=https|:status=200|"
    ":status=204|:status=206|:status=304|:status=400|:status=404|:status=500|accept-charset=|"
    "accept-encoding=gzip, deflate|accept-language=|accept-ranges=|accept=|access-control-allow-origin=|age=|"
    "allow=|authorization=|cache-control=|content-disposition=|content-encoding=|content-language=|"
    "content-length=|content-location=|content-range=|content-type=|cookie=|date=|etag=|expect=|expires=|from=|"
    "host=|if-match=|if-modified-since=|if-none-match=|if-range=|if-unmodified-since=|last-modified=|link=|"
    "location=|max-forwards=|proxy-authenticate=|proxy-authorization=|range=|referer=|refresh=|retry-after=|"
    "server=|set-cookie=|strict-transport-security=|transfer-encoding=|user-agent=|vary=|via=|www-authenticate=";
constexpr auto kStatic = [] {
  std::array<std::pair<std::string_view, std::string_view>, 61> entries;
  std::size_t at = 0;
  for (auto& entry : entries) {
    const auto both = kStaticText.substr(at, kStaticText.find('|', at) - at);
    entry = {both.substr(0, both.find('=')), both.substr(both.find('=') + 1)};
    at += both.size() + 1;
  }
  return entries;
}();
static_assert(kStatic.back().first == "www-authenticate" && kStatic.back().second.empty());

/// RFC 7541, appendix B: how many bits the code of each symbol has. The last one marks the end of a text. The codes
/// follow from the lengths: they count up, shorter codes first, and symbols of one length in their order.
constexpr std::array<std::uint8_t, 257> kCodeBits = {
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6,  10, 10, 12, 13, 6,  8,  11, 10, 10, 8,  11, 8,  6,  6,  6,  5,  5,  5,  6,  6,  6,  6,  6,  6,  6,
    7,  8,  15, 6,  12, 10, 13, 6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
    7,  8,  7,  8,  13, 19, 13, 14, 6,  15, 5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,  6,  7,  6,  5,
    5,  6,  7,  7,  7,  7,  7,  15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24,
    24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22,
    23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26,
    27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23,
    22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30};
constexpr int kLongestCode = 30;
constexpr std::uint16_t kEnd = 256;

/// For each length of a code: the first code, how many there are, and where their symbols begin.
struct Huffman {
  std::array<std::uint32_t, kLongestCode + 1> first{}, count{}, place{};
  std::array<std::uint16_t, 257> symbols{};

  constexpr Huffman() {
    std::uint32_t code = 0, at = 0;
    for (std::size_t bits = 1; bits <= kLongestCode; ++bits) {
      code <<= 1;
      first[bits] = code;
      place[bits] = at;
      for (std::uint16_t symbol = 0; symbol < kCodeBits.size(); ++symbol) {
        if (kCodeBits[symbol] == bits) symbols[at++] = symbol;
      }
      count[bits] = at - place[bits];
      code += count[bits];
    }
  }
};
constexpr Huffman kHuffman;

/// The bytes that are left of a block.
class Bytes {
 public:
  explicit Bytes(std::string_view text) : left_(text) {}

  bool is_empty() const { return left_.empty(); }
  std::uint8_t peek() const { return static_cast<std::uint8_t>(left_.front()); }
  /// A number that begins in the low `bits` of the next byte.
  bool number(int bits, std::uint64_t& value) {
    constexpr int kMostShift = 28;  // numbers of a header are far smaller
    if (left_.empty()) return false;
    const std::uint64_t full = (1U << bits) - 1;
    value = next() & full;
    if (value < full) return true;
    for (int shift = 0; shift <= kMostShift; shift += 7) {
      if (left_.empty()) return false;
      const auto byte = next();
      value += static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }
  bool text(std::string& value) {
    if (left_.empty()) return false;
    const bool is_coded = (peek() & 0x80) != 0;
    std::uint64_t size = 0;
    if (!number(7, size) || size > left_.size()) return false;
    const auto raw = left_.substr(0, size);
    left_.remove_prefix(size);
    if (!is_coded) {
      value = raw;
      return true;
    }
    auto read = read_huffman(raw);
    if (!read) return false;
    value = std::move(*read);
    return true;
  }

 private:
  std::uint8_t next() {
    const auto byte = peek();
    left_.remove_prefix(1);
    return byte;
  }
  std::string_view left_;
};

}  // namespace

std::optional<std::string> read_huffman(std::string_view coded) {
  std::string text;
  std::uint32_t code = 0;
  std::size_t bits = 0;
  for (const char c : coded) {
    for (int bit = 7; bit >= 0; --bit) {
      code = code << 1 | (static_cast<std::uint8_t>(c) >> bit & 1U);
      if (++bits > kLongestCode) return std::nullopt;
      if (code < kHuffman.first[bits] || code - kHuffman.first[bits] >= kHuffman.count[bits]) continue;
      const auto symbol = kHuffman.symbols[kHuffman.place[bits] + code - kHuffman.first[bits]];
      if (symbol == kEnd) return std::nullopt;
      text += static_cast<char>(symbol);
      code = 0;
      bits = 0;
    }
  }
  // The last byte is filled up with ones, the beginning of kEnd's code.
  if (bits > 7 || code != (1U << bits) - 1) return std::nullopt;
  return text;
}

bool HpackReader::find(std::uint64_t index, Header& header) const {
  if (index == 0) return false;
  if (index <= kStatic.size()) {
    header = Header(kStatic[index - 1].first, kStatic[index - 1].second);
    return true;
  }
  if (index - kStatic.size() > table_.size()) return false;
  header = table_[index - kStatic.size() - 1];
  return true;
}

void HpackReader::shrink_to(std::size_t bytes) {
  while (bytes_ > bytes) {
    bytes_ -= table_.back().first.size() + table_.back().second.size() + kEntryBytes;
    table_.pop_back();
  }
}

void HpackReader::keep(const Header& header) {
  const auto bytes = header.first.size() + header.second.size() + kEntryBytes;
  shrink_to(bytes > most_ ? 0 : most_ - bytes);
  if (bytes > most_) return;
  table_.push_front(header);
  bytes_ += bytes;
}

bool HpackReader::read(std::string_view block, std::size_t most_bytes, const Take& take) {
  Bytes bytes(block);
  std::size_t size = 0;
  while (!bytes.is_empty()) {
    const auto kind = bytes.peek();
    std::uint64_t index = 0;
    Header header;
    if ((kind & 0xE0) == 0x20) {
      if (!bytes.number(5, index) || index > kTableBytes) return false;
      most_ = index;
      shrink_to(most_);
      continue;
    }
    if ((kind & 0x80) != 0) {
      if (!bytes.number(7, index) || !find(index, header)) return false;
    } else {
      const bool is_kept = (kind & 0x40) != 0;
      if (!bytes.number(is_kept ? 6 : 4, index)) return false;
      if (index == 0 ? !bytes.text(header.first) : !find(index, header)) return false;
      if (!bytes.text(header.second)) return false;
      if (is_kept) keep(header);
    }
    size += header.first.size() + header.second.size() + kEntryBytes;
    if (size > most_bytes) return false;
    take(header.first, header.second);
  }
  return true;
}

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
