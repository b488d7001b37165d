#include "data/prepare/text/inflate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

// A decoder of RFC 1951 that reads codes one bit at a time, as the reference decoder does. Manual pages are small, so
// checking every read matters more than speed.
namespace data::prepare {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw std::runtime_error(std::string("gzip: ") + what);
}

class Bits {
 public:
  explicit Bits(std::string_view bytes) : bytes_(bytes) {}

  int one() { return static_cast<int>(many(1)); }

  std::uint32_t many(int count) {
    while (held_ < count) {
      buffer_ |= static_cast<std::uint64_t>(byte()) << held_;
      held_ += 8;
    }
    const auto value = static_cast<std::uint32_t>(buffer_ & ((1u << count) - 1));
    buffer_ >>= count;
    held_ -= count;
    return value;
  }

  /// Drops the remaining bits of the current byte. Whole bytes follow.
  void align() {
    buffer_ = 0;
    held_ = 0;
  }

  unsigned char byte() {
    if (at_ == bytes_.size()) refuse("the data ends too early");
    return static_cast<unsigned char>(bytes_[at_++]);
  }

  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  std::uint64_t buffer_ = 0;
  int held_ = 0;
};

constexpr int kLongestCode = 15;

/// A canonical Huffman code: the number of codes of each length, and the symbols in code order.
class Huffman {
 public:
  explicit Huffman(std::span<const std::uint8_t> lengths) : symbols_(lengths.size()) {
    for (const auto length : lengths) ++count_[length];
    int left = 1;
    for (int length = 1; length <= kLongestCode; ++length) {
      left = left * 2 - count_[length];
      if (left < 0) refuse("a code is over-subscribed");
    }
    std::array<std::uint16_t, kLongestCode + 2> offset{};
    for (int length = 1; length <= kLongestCode; ++length) offset[length + 1] = offset[length] + count_[length];
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      if (lengths[symbol] != 0) symbols_[offset[lengths[symbol]]++] = static_cast<std::uint16_t>(symbol);
    }
  }

  int decode(Bits& bits) const {
    int code = 0, first = 0, index = 0;
    for (int length = 1; length <= kLongestCode; ++length) {
      code |= bits.one();
      const int count = count_[length];
      if (code - count < first) return symbols_[index + (code - first)];
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    refuse("a code word is unknown");
  }

 private:
  std::array<std::uint16_t, kLongestCode + 1> count_{};
  std::vector<std::uint16_t> symbols_;
};

constexpr std::array<std::uint16_t, 29> kLengthBase = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                                       31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr std::array<std::uint8_t, 29> kLengthExtra = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                       2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr std::array<std::uint16_t, 30> kDistanceBase = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                                         33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                                         1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
constexpr std::array<std::uint8_t, 30> kDistanceExtra = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                                         6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};

/// The unpacked bytes. The text grows up to a bound and then reports that it is full.
struct Output {
  std::string text;
  std::size_t member_start = 0;
  std::size_t max_bytes;

  bool full() const { return text.size() >= max_bytes; }
};

void copy_stored(Bits& bits, Output& out) {
  bits.align();
  const unsigned length = bits.byte() | (bits.byte() << 8);
  const unsigned complement = bits.byte() | (bits.byte() << 8);
  if ((length ^ 0xffffu) != complement) refuse("a stored block's length is damaged");
  for (unsigned i = 0; i < length && !out.full(); ++i) out.text += static_cast<char>(bits.byte());
}

void copy_coded(Bits& bits, const Huffman& lengths, const Huffman& distances, Output& out) {
  while (!out.full()) {
    int symbol = lengths.decode(bits);
    if (symbol < 256) {
      out.text += static_cast<char>(symbol);
      continue;
    }
    if (symbol == 256) return;
    symbol -= 257;
    if (symbol >= 29) refuse("a length code is unknown");
    const std::size_t length = kLengthBase[symbol] + bits.many(kLengthExtra[symbol]);
    const int code = distances.decode(bits);
    if (code >= 30) refuse("a distance code is unknown");
    const std::size_t distance = kDistanceBase[code] + bits.many(kDistanceExtra[code]);
    if (distance > out.text.size() - out.member_start) refuse("a distance reaches back before the start");
    for (std::size_t i = 0; i < length && !out.full(); ++i) out.text += out.text[out.text.size() - distance];
  }
}

void copy_fixed(Bits& bits, Output& out) {
  std::array<std::uint8_t, 288> lengths;
  for (int i = 0; i < 288; ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  std::array<std::uint8_t, 30> distances;
  distances.fill(5);
  copy_coded(bits, Huffman(lengths), Huffman(distances), out);
}

void copy_dynamic(Bits& bits, Output& out) {
  static constexpr std::array<std::uint8_t, 19> kOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                          11, 4,  12, 3, 13, 2, 14, 1, 15};
  const unsigned literal_count = bits.many(5) + 257, distance_count = bits.many(5) + 1, code_count = bits.many(4) + 4;
  if (literal_count > 286 || distance_count > 30) refuse("a block has too many codes");
  std::array<std::uint8_t, 320> lengths{};
  for (unsigned i = 0; i < code_count; ++i) lengths[kOrder[i]] = static_cast<std::uint8_t>(bits.many(3));
  const Huffman code_lengths{std::span(lengths).first(19)};
  lengths.fill(0);
  for (unsigned at = 0; at < literal_count + distance_count;) {
    const int symbol = code_lengths.decode(bits);
    if (symbol < 16) {
      lengths[at++] = static_cast<std::uint8_t>(symbol);
      continue;
    }
    if (symbol == 16 && at == 0) refuse("a length is repeated before there is one");
    const std::uint8_t value = symbol == 16 ? lengths[at - 1] : std::uint8_t{0};
    const unsigned repeat = symbol == 16 ? 3 + bits.many(2) : symbol == 17 ? 3 + bits.many(3) : 11 + bits.many(7);
    if (at + repeat > literal_count + distance_count) refuse("a block has too many lengths");
    for (unsigned i = 0; i < repeat; ++i) lengths[at++] = value;
  }
  if (lengths[256] == 0) refuse("a block has no end code");
  copy_coded(bits, Huffman{std::span(lengths).first(literal_count)},
             Huffman{std::span(lengths).subspan(literal_count, distance_count)}, out);
}

void skip_header(Bits& in) {
  if (in.byte() != 0x1f || in.byte() != 0x8b || in.byte() != 8) refuse("this is no gzip file");
  const unsigned char flags = in.byte();
  for (int i = 0; i < 6; ++i) in.byte();  // time, extra flags, system
  if (flags & 4) {
    const unsigned length = in.byte() | (in.byte() << 8);
    for (unsigned i = 0; i < length; ++i) in.byte();
  }
  for (const int string_flag : {8, 16}) {
    if (flags & string_flag) {
      while (in.byte() != 0) {
      }
    }
  }
  if (flags & 2) in.many(16);
}

std::uint32_t crc32(std::string_view text) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> out;
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c & 1) ? 0xedb88320u ^ (c >> 1) : c >> 1;
      out[i] = c;
    }
    return out;
  }();
  std::uint32_t crc = 0xffffffffu;
  for (const unsigned char c : text) crc = table[(crc ^ c) & 0xff] ^ (crc >> 8);
  return ~crc;
}

void unpack_member(Bits& in, Output& out) {
  skip_header(in);
  out.member_start = out.text.size();
  bool last = false;
  while (!last && !out.full()) {
    last = in.one() == 1;
    switch (in.many(2)) {
      case 0:
        copy_stored(in, out);
        break;
      case 1:
        copy_fixed(in, out);
        break;
      case 2:
        copy_dynamic(in, out);
        break;
      default:
        refuse("a block is of unknown kind");
    }
  }
  if (out.full()) return;
  in.align();
  std::uint32_t expected = 0;
  for (int i = 0; i < 4; ++i) expected |= static_cast<std::uint32_t>(in.byte()) << (8 * i);
  if (expected != crc32(std::string_view(out.text).substr(out.member_start))) refuse("the checksum does not fit");
  for (int i = 0; i < 4; ++i) in.byte();  // size
}

}  // namespace

std::string gunzip(std::string_view bytes, std::size_t max_bytes) {
  Bits in(bytes);
  Output out{{}, 0, max_bytes};
  while (!in.at_end() && !out.full()) unpack_member(in, out);
  return std::move(out.text);
}

}  // namespace data::prepare
