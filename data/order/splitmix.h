#pragma once

#include <cstdint>

namespace data::order {

/// The finalizer of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): numbers
/// that are close become numbers that are not. The same on every platform.
constexpr std::uint64_t splitmix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// How far apart two numbers of one sequence are before the finalizer.
inline constexpr std::uint64_t kSplitmixStride = 0x9e3779b97f4a7c15ull;

}  // namespace data::order
