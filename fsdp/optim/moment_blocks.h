#pragma once
#include <cstdint>

// Updates of one block of elements on the CPU, for moments.cpp. moment_blocks.cpp reads no header of LibTorch, because
// it is compiled with flags of its own.

namespace fsdp {

/// Elements that are updated at once, in the first cache.
inline constexpr std::int64_t kMomentBlock = 256;
/// The smallest scale of a quantised block, as in torchao.
inline constexpr float kLeastScale = 1e-12f;

/// AdamStep in the arithmetic of elements. `left1` is 1 - beta1.
struct AdamNumbers {
  float scale, decay, penalty, left1, beta2, left2, size, root, eps;
};

/// One block of a slice: its elements' values, and the place of the first one in the parameter.
template <class Value>
struct MomentBlock {
  float *parameter, *gradient;
  Value *first, *second;  // the moments
  std::int64_t place;
};

/// The keys of the random bits of elements whose places have equal bits above the lowest 32.
struct RandomKeys {
  RandomKeys(std::uint64_t key, std::int64_t place) {
    key += static_cast<std::uint64_t>(place >> 32) * 0x9e3779b97f4a7c15ull;
    first = static_cast<std::uint32_t>(key);
    second = static_cast<std::uint32_t>(key >> 32);
  }
  std::uint32_t first, second;
};
/// The factors of lowbias32 (Wellons, Prospecting for Hash Functions).
inline constexpr std::uint32_t kFirstFactor = 0x7feb352d, kSecondFactor = 0x846ca68b;

/// The bits of the moments are those of bf16.
void update_bf16(const MomentBlock<std::uint16_t>& block, const AdamNumbers& numbers, std::uint64_t key);
/// The moments are codes, each times the scale of the block.
void update_int8(const MomentBlock<std::uint8_t>& block, const AdamNumbers& numbers, float& first_scale,
                 float& second_scale);

}  // namespace fsdp
