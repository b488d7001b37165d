#pragma once

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

}  // namespace base
