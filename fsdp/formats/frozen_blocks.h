#pragma once
#include <cstdint>

// Blocks of frozen parameters as codes and scales, on the CPU. A value is what its code stands for times the scale of
// its block, which is the block's largest absolute value. The codes and scales are those of bitsandbytes'
// quantize_4bit() with quant_type "nf4", and of its quantize_blockwise().

namespace fsdp {

/// Elements that share a scale.
inline constexpr std::int64_t kNf4Block = 64, kInt8Block = 256;

/// The values of the 16 codes of nf4: quantiles of the normal distribution, scaled to [-1, 1] (Dettmers et al., QLoRA,
/// arXiv 2305.14314, appendix E).
inline constexpr float kNf4Values[] = {-1.0f,
                                       -0.6961928009986877f,
                                       -0.5250730514526367f,
                                       -0.39491748809814453f,
                                       -0.28444138169288635f,
                                       -0.18477343022823334f,
                                       -0.09105003625154495f,
                                       0.0f,
                                       0.07958029955625534f,
                                       0.16093020141124725f,
                                       0.24611230194568634f,
                                       0.33791524171829224f,
                                       0.44070982933044434f,
                                       0.5626170039176941f,
                                       0.7229568362236023f,
                                       1.0f};

/// Quantises one block: `count` values, at most a block's. The last block of a parameter may have fewer. Two codes of
/// nf4 share a byte, the first one in the upper four bits. A value that is not finite makes the scale so, and with it
/// the whole block.
void quantise_nf4(const float* values, int count, std::uint8_t* codes, float& scale);
void quantise_int8(const float* values, int count, std::uint8_t* codes, float& scale);

/// Gives one whole block its values, in fp32 or as the bits of bf16, rounded to nearest.
void dequantise_nf4(const std::uint8_t* codes, float scale, float* values);
void dequantise_nf4(const std::uint8_t* codes, float scale, std::uint16_t* values);
void dequantise_int8(const std::uint8_t* codes, float scale, float* values);
void dequantise_int8(const std::uint8_t* codes, float scale, std::uint16_t* values);

}  // namespace fsdp
