#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace base {

/// A 64-bit checksum fed in pieces. The result depends on the bytes only, not on the pieces. It detects damage but does
/// not protect against forgery.
class Checksum {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) {
      word_ |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << (8 * (count_ % 8));
      if (++count_ % 8 == 0) fold();
    }
  }

  std::uint64_t value() const { return mix(state_ ^ mix(word_ ^ count_)); }
  /// The value as 16 lower-case hexadecimal digits.
  std::string hex() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value()));
    return text;
  }

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  void fold() {
    state_ = (state_ ^ mix(word_)) * 0x9e3779b97f4a7c15ull + 1;
    word_ = 0;
  }

  std::uint64_t state_ = 0x6d75737465722121ull;
  std::uint64_t word_ = 0;
  std::uint64_t count_ = 0;
};

inline std::uint64_t checksum_of(std::string_view bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

/// CRC-32C (Castagnoli) of the bytes. To continue over more bytes, pass the last result as `before`. Uses the SSE4.2
/// instruction where the processor has it.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);
/// The checksum of crc32c() in plain C++, for other processors and for tests.
std::uint32_t crc32c_portable(std::string_view bytes, std::uint32_t before = 0);
/// The CRC-32C as TFRecord files have it, masked.
std::uint32_t masked_crc32c(std::string_view bytes);

/// SHA-256 (FIPS 180-4) of bytes that come in pieces. In plain C++, because the worker links no OpenSSL.
class Sha256 {
 public:
  using Digest = std::array<std::uint8_t, 32>;

  void add(std::string_view bytes);
  /// The digest of all bytes so far. More bytes may follow.
  Digest digest() const;

 private:
  static constexpr std::size_t kBlock = 64;

  void take_block(const char* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<char, kBlock> rest_{};  // bytes_ % kBlock of them wait for a whole block
  std::uint64_t bytes_ = 0;
};

Sha256::Digest sha256(std::string_view bytes);
/// 64 lower-case hexadecimal digits.
std::string hex(const Sha256::Digest& digest);

}  // namespace base
