#pragma once
#include <cstdint>

namespace fsdp {

/// The next random number after `state`, which moves on (Steele, Lea and Flood, 2014). Equal on every platform.
inline std::uint64_t splitmix64(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace fsdp
