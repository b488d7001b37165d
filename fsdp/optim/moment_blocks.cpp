#include "fsdp/optim/moment_blocks.h"

#include <bit>
#include <cmath>

#include "fsdp/formats/code_map.h"

// Each block is updated by code for AVX2 where the machine has it. Both codes have the same bits, because products and
// sums are not fused.

namespace fsdp {
namespace {

constexpr int kBlock = kMomentBlock;

#define MUSTER_INLINE [[gnu::always_inline]] inline

/// Numbers are passed by value, so that no store of the loop can change them.
MUSTER_INLINE void adam(float* __restrict parameter, float* __restrict gradient, float* __restrict first,
                        float* __restrict second, const AdamNumbers n) {
  if (n.scale != 1)
    for (int i = 0; i < kBlock; ++i) gradient[i] = gradient[i] / n.scale;
  for (int i = 0; i < kBlock; ++i) {
    const float weight = parameter[i] - n.decay * parameter[i];
    const float slope = gradient[i] + n.penalty * parameter[i];
    first[i] = first[i] + n.left1 * (slope - first[i]);
    second[i] = n.beta2 * second[i] + n.left2 * slope * slope;
    parameter[i] = weight - n.size * first[i] / (std::sqrt(second[i]) / n.root + n.eps);
  }
}

MUSTER_INLINE std::uint32_t random_bits(std::uint32_t place, const RandomKeys keys) {
  std::uint32_t x = place ^ keys.first;
  x = (x ^ (x >> 16)) * kFirstFactor;
  x = ((x ^ (x >> 15)) + keys.second) * kSecondFactor;
  return x ^ (x >> 16);
}

/// Adds random bits below the last bit that bf16 has, and cuts those off.
MUSTER_INLINE std::uint16_t rounded(float value, std::uint32_t random) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + random) >> 16);
}

MUSTER_INLINE void bf16(const MomentBlock<std::uint16_t>& block, const AdamNumbers& n, std::uint64_t key) {
  alignas(64) float first[kBlock], second[kBlock];
  std::uint16_t* __restrict kept_first = block.first, * __restrict kept_second = block.second;
  for (int i = 0; i < kBlock; ++i) {
    first[i] = std::bit_cast<float>(static_cast<std::uint32_t>(kept_first[i]) << 16);
    second[i] = std::bit_cast<float>(static_cast<std::uint32_t>(kept_second[i]) << 16);
  }
  adam(block.parameter, block.gradient, first, second, n);
  const RandomKeys keys(key, block.place);
  const auto place = static_cast<std::uint32_t>(block.place);
  for (int i = 0; i < kBlock; ++i) {
    const std::uint32_t random = random_bits(place + static_cast<std::uint32_t>(i), keys);
    kept_first[i] = rounded(first[i], random & 0xffff);
    kept_second[i] = rounded(second[i], random >> 16);
  }
}

/// The largest absolute value. Numbers of the same sign are in the order of their bits.
MUSTER_INLINE float scale_of(const float* __restrict values) {
  std::int32_t largest = 0;
  for (int i = 0; i < kBlock; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  const auto scale = std::bit_cast<float>(largest);
  return scale < kLeastScale ? kLeastScale : scale;
}

MUSTER_INLINE void read_codes(const std::uint8_t* __restrict codes, float scale, const float* __restrict map,
                              float* __restrict values) {
  for (int i = 0; i < kBlock; ++i) values[i] = map[codes[i]] * scale;
}

MUSTER_INLINE float write_codes(float* __restrict values, const float* __restrict middles,
                                const std::int32_t* __restrict lowest, std::uint8_t* __restrict codes) {
  const float scale = scale_of(values);
  for (int i = 0; i < kBlock; ++i) values[i] = values[i] / scale;
  for (int i = 0; i < kBlock; ++i) {
    const std::int32_t code = lowest[std::bit_cast<std::uint32_t>(values[i]) >> 16];
    codes[i] = static_cast<std::uint8_t>(code + (values[i] >= middles[code] ? 1 : 0));
  }
  return scale;
}

MUSTER_INLINE void int8(const MomentBlock<std::uint8_t>& block, const AdamNumbers& n, float& first_scale,
                        float& second_scale, const CodeMap& with_signs, const CodeMap& without) {
  alignas(64) float first[kBlock], second[kBlock];
  read_codes(block.first, first_scale, with_signs.values.data(), first);
  read_codes(block.second, second_scale, without.values.data(), second);
  adam(block.parameter, block.gradient, first, second, n);
  first_scale = write_codes(first, with_signs.middles.data(), with_signs.lowest.data(), block.first);
  second_scale = write_codes(second, without.middles.data(), without.lowest.data(), block.second);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] void bf16_avx2(const MomentBlock<std::uint16_t>& block, const AdamNumbers& n,
                                       std::uint64_t key) {
  bf16(block, n, key);
}

[[gnu::target("avx2")]] void int8_avx2(const MomentBlock<std::uint8_t>& block, const AdamNumbers& n, float& first_scale,
                                       float& second_scale, const CodeMap& with_signs, const CodeMap& without) {
  int8(block, n, first_scale, second_scale, with_signs, without);
}

const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
#endif

}  // namespace

void update_bf16(const MomentBlock<std::uint16_t>& block, const AdamNumbers& numbers, std::uint64_t key) {
#ifdef __x86_64__
  if (kHasAvx2) return bf16_avx2(block, numbers, key);
#endif
  bf16(block, numbers, key);
}

void update_int8(const MomentBlock<std::uint8_t>& block, const AdamNumbers& numbers, float& first_scale,
                 float& second_scale) {
  const CodeMap &with_signs = code_map(true), &without = code_map(false);
#ifdef __x86_64__
  if (kHasAvx2) return int8_avx2(block, numbers, first_scale, second_scale, with_signs, without);
#endif
  int8(block, numbers, first_scale, second_scale, with_signs, without);
}

}  // namespace fsdp
