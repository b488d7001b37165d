#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

/// A stream of random numbers by splitmix64. The same on every platform and library version, which std::shuffle and the
/// distributions of <random> do not promise.
class Random {
 public:
  /// All streams walk the same sequence in equal strides. Without mixing, the streams of neighbouring seeds would
  /// overlap after a few strides.
  Random(std::uint64_t seed, std::uint64_t stream) : state_(splitmix(splitmix(seed) + stream)) {}

  /// Uniform in [0, bound), with a bias below bound / 2^64. `bound` is at least 1.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

  /// Uniform in [0, 1), a multiple of 2^-53.
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  /// Uniform in [low, high), or in (high, low] where high is below low.
  double between(double low, double high) { return low + (high - low) * unit(); }

  /// Draws whether an event of this probability happens. Never for 0, always for 1.
  bool happens(double probability) { return unit() < probability; }

  /// A permutation with equal probabilities for all, by Fisher and Yates.
  template <class Value>
  void shuffle(std::vector<Value>& values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      const Value last = values[i - 1];
      const auto other = static_cast<std::size_t>(below(i));
      values[i - 1] = values[other];
      values[other] = last;
    }
  }

 private:
  std::uint64_t next() { return splitmix(state_ += kSplitmixStride); }

  std::uint64_t state_;
};

}  // namespace data::order
