#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp {

/// How the values of a parameter that never trains are kept between uses, and sent in all-gathers. While its unit is
/// gathered the parameter has values in Precision::param_dtype, as any other.
enum class FrozenFormat : std::uint8_t {
  /// In Precision::param_dtype.
  kPlain,
  /// 8.125 bits an element: a code of 8 bits of the dynamic map with signs, and a scale in fp32 for 256 elements. As
  /// bitsandbytes' quantize_blockwise(blocksize=256).
  kInt8,
  /// 4.5 bits an element: a code of 4 bits, and a scale in fp32 for 64 elements. As bitsandbytes' quantize_4bit() with
  /// quant_type "nf4" and blocksize 64, and without a second quantisation of the scales.
  kNf4,
};

/// "plain", "int8" or "nf4".
const char* name_of(FrozenFormat format);
/// Elements that share a scale. 1: there are no scales.
std::int64_t block_of(FrozenFormat format);

/// How `elements` values lie in a flat tensor of bytes: first all codes, then all scales, then up to 63 bytes of
/// padding.
///
/// Blocks are counted from the first element. A segment's parameters and chunks start at multiples of a block, so a
/// parameter's blocks are counted from its own first element, and no block lies on two ranks. So codes and values do
/// not depend on the number of ranks. Not thread-safe, and used on one device.
class Packing {
 public:
  /// `elements` is a multiple of block_of(format). `format` is not kPlain.
  Packing(FrozenFormat format, std::int64_t elements);

  FrozenFormat format() const { return format_; }
  std::int64_t elements() const { return elements_; }
  /// Bytes of the tensor, whole cache lines.
  std::int64_t bytes() const;

  /// Quantises `values`, [n] in any floating-point dtype on any device, into elements from `begin` on, a multiple of a
  /// block. `packed` is uint8 [bytes()] on any device. Where n is no multiple of a block, the parameter ends there.
  void quantise(const at::Tensor& values, const at::Tensor& packed, std::int64_t begin) const;
  /// Writes all values, [elements()] in fp32, bf16 or fp16, on the device of `packed`: each is a code's value times a
  /// scale, computed in fp32 and rounded to nearest. Writes below autograd, which sees no change.
  void dequantise(const at::Tensor& packed, const at::Tensor& values) const;
  /// Writes the same bits by LibTorch's operations, on any device. Pieces of 2^22 elements need up to 50 MiB.
  void dequantise_by_operations(const at::Tensor& packed, const at::Tensor& values) const;

 private:
  std::int64_t code_bytes() const;
  std::int64_t scale_bytes() const;
  at::Tensor codes_of(const at::Tensor& packed) const;
  at::Tensor scales_of(const at::Tensor& packed) const;

  FrozenFormat format_;
  std::int64_t elements_;
  mutable at::Tensor table_;  // of dequantise_by_operations(), on its device
};

}  // namespace fsdp
