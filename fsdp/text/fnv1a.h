#pragma once
#include <cstdint>
#include <string_view>

namespace fsdp {

/// The hash FNV-1a of 64 bits, fed with letters and numbers. A number is one step, as a letter is.
class Fnv1a {
 public:
  explicit Fnv1a(std::uint64_t start = 0) : hash_(0xcbf29ce484222325 ^ start) {}
  Fnv1a& add(std::uint64_t number) {
    hash_ = (hash_ ^ number) * 0x100000001b3;
    return *this;
  }
  Fnv1a& add(std::string_view letters) {
    for (const char letter : letters) add(std::uint64_t{static_cast<unsigned char>(letter)});
    return *this;
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_;
};

}  // namespace fsdp
