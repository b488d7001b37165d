#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace base {

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
