#include "fsdp/formats/frozen_blocks.h"

#include <array>
#include <bit>

#include "fsdp/formats/code_map.h"

// Each block is computed by code for AVX2 where the machine has it. Both codes have the same bits, because products and
// sums are not fused.

namespace fsdp {
namespace {

#define MUSTER_INLINE [[gnu::always_inline]] inline

constexpr int kNf4Codes = 16;
constexpr float kLeast = 1e-38f;  // so that its inverse is finite, as in bitsandbytes

constexpr std::array<float, kNf4Codes - 1> middles_of_nf4() {
  std::array<float, kNf4Codes - 1> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = (kNf4Values[i] + kNf4Values[i + 1]) / 2;
  return out;
}
constexpr std::array<float, kNf4Codes - 1> kNf4Middles = middles_of_nf4();

/// The two values of each byte.
constexpr std::array<float, 512> pairs_of_nf4() {
  std::array<float, 512> out{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    out[2 * byte] = kNf4Values[byte >> 4];
    out[2 * byte + 1] = kNf4Values[byte & 15];
  }
  return out;
}
constexpr std::array<float, 512> kNf4Pairs = pairs_of_nf4();

/// Numbers of the same sign are in the order of their bits, and what is no number comes last.
template <int block>
MUSTER_INLINE float scale_of(const float* __restrict values) {
  std::int32_t largest = 0;
  for (int i = 0; i < block; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return std::bit_cast<float>(largest);
}

/// Copies `count` values, with zeros behind them, and makes the shares of the largest that they are. bitsandbytes
/// multiplies by an inverse in whole blocks, and divides in one that ends early.
template <int block>
MUSTER_INLINE float shares_of(const float* __restrict values, int count, float* __restrict shares) {
  for (int i = 0; i < count; ++i) shares[i] = values[i];
  for (int i = count; i < block; ++i) shares[i] = 0;
  const float scale = scale_of<block>(shares);
  const float divisor = scale < kLeast ? kLeast : scale;
  if (count == block) {
    const float inverse = 1 / divisor;
    for (int i = 0; i < block; ++i) shares[i] = shares[i] * inverse;
  } else {
    for (int i = 0; i < block; ++i) shares[i] = shares[i] / divisor;
  }
  return scale;
}

MUSTER_INLINE float nf4_codes(const float* __restrict values, int count, std::uint8_t* __restrict codes) {
  constexpr int kBlock = kNf4Block;
  alignas(64) float shares[kBlock];
  alignas(64) std::int32_t above[kBlock] = {};
  const float scale = shares_of<kBlock>(values, count, shares);
  for (const float middle : kNf4Middles)
    for (int i = 0; i < kBlock; ++i) above[i] += shares[i] > middle ? 1 : 0;
  for (int i = 0; i < (count + 1) / 2; ++i) codes[i] = static_cast<std::uint8_t>(above[2 * i] << 4 | above[2 * i + 1]);
  return scale;
}

MUSTER_INLINE float int8_codes(const float* __restrict values, int count, std::uint8_t* __restrict codes,
                               const CodeMap& map) {
  constexpr int kBlock = kInt8Block;
  alignas(64) float shares[kBlock];
  const float scale = shares_of<kBlock>(values, count, shares);
  for (int i = 0; i < count; ++i) {
    const std::int32_t code = map.lowest[std::bit_cast<std::uint32_t>(shares[i]) >> 16];
    codes[i] = static_cast<std::uint8_t>(code + (shares[i] >= map.middles[static_cast<std::size_t>(code)] ? 1 : 0));
  }
  return scale;
}

MUSTER_INLINE void round_to(float value, float& out) {
  out = value;
}

MUSTER_INLINE void round_to(float value, std::uint16_t& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  out = static_cast<std::uint16_t>(value == value ? rounded : 0x7fc0);
}

template <class Value>
MUSTER_INLINE void nf4_values(const std::uint8_t* __restrict codes, float scale, Value* __restrict values) {
  alignas(64) float all[kNf4Block];
  for (int i = 0; i < kNf4Block / 2; ++i) {
    all[2 * i] = kNf4Pairs[2 * codes[i]];
    all[2 * i + 1] = kNf4Pairs[2 * codes[i] + 1];
  }
  for (int i = 0; i < kNf4Block; ++i) round_to(all[i] * scale, values[i]);
}

template <class Value>
MUSTER_INLINE void int8_values(const std::uint8_t* __restrict codes, float scale, Value* __restrict values,
                               const float* __restrict map) {
  for (int i = 0; i < kInt8Block; ++i) round_to(map[codes[i]] * scale, values[i]);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] float nf4_codes_avx2(const float* values, int count, std::uint8_t* codes) {
  return nf4_codes(values, count, codes);
}

template <class Value>
[[gnu::target("avx2")]] void nf4_values_avx2(const std::uint8_t* codes, float scale, Value* values) {
  nf4_values(codes, scale, values);
}

template <class Value>
[[gnu::target("avx2")]] void int8_values_avx2(const std::uint8_t* codes, float scale, Value* values, const float* map) {
  int8_values(codes, scale, values, map);
}

const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
#endif

template <class Value>
void any_nf4_values(const std::uint8_t* codes, float scale, Value* values) {
#ifdef __x86_64__
  if (kHasAvx2) return nf4_values_avx2(codes, scale, values);
#endif
  nf4_values(codes, scale, values);
}

template <class Value>
void any_int8_values(const std::uint8_t* codes, float scale, Value* values) {
  const float* map = code_map(true).values.data();
#ifdef __x86_64__
  if (kHasAvx2) return int8_values_avx2(codes, scale, values, map);
#endif
  int8_values(codes, scale, values, map);
}

}  // namespace

void quantise_nf4(const float* values, int count, std::uint8_t* codes, float& scale) {
#ifdef __x86_64__
  if (kHasAvx2) {
    scale = nf4_codes_avx2(values, count, codes);
    return;
  }
#endif
  scale = nf4_codes(values, count, codes);
}

void quantise_int8(const float* values, int count, std::uint8_t* codes, float& scale) {
  scale = int8_codes(values, count, codes, code_map(true));
}

void dequantise_nf4(const std::uint8_t* codes, float scale, float* values) {
  any_nf4_values(codes, scale, values);
}

void dequantise_nf4(const std::uint8_t* codes, float scale, std::uint16_t* values) {
  any_nf4_values(codes, scale, values);
}

void dequantise_int8(const std::uint8_t* codes, float scale, float* values) {
  any_int8_values(codes, scale, values);
}

void dequantise_int8(const std::uint8_t* codes, float scale, std::uint16_t* values) {
  any_int8_values(codes, scale, values);
}

}  // namespace fsdp
