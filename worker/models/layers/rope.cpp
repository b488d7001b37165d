#include "worker/models/layers/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <c10/util/Exception.h>

#include <numbers>

namespace worker {
namespace {

/// The angle of each pair at position 1, fp32 [dim / 2].
at::Tensor frequencies(const RopeOptions& rope, at::Device device) {
  TORCH_CHECK(rope.dim > 0 && rope.dim % 2 == 0, "rope_table: dim is ", rope.dim, "; want an even number above 0");
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor exponent = at::arange(0, rope.dim, 2, options) / static_cast<double>(rope.dim);
  const at::Tensor plain = 1.0 / at::pow(rope.theta, exponent);
  if (rope.type == spec::RopeScaling::kDefault) return plain;
  if (rope.type == spec::RopeScaling::kLinear) return plain / rope.factor;
  TORCH_CHECK(rope.original_positions > 0 && rope.high_freq_factor > rope.low_freq_factor,
              "rope_table: llama3 with original_positions = ", rope.original_positions,
              ", low_freq_factor = ", rope.low_freq_factor, " and high_freq_factor = ", rope.high_freq_factor,
              "; want positions above 0 and the high factor above the low one");
  // 0 for long wavelengths, 1 for short ones.
  const at::Tensor turns = plain * (static_cast<double>(rope.original_positions) / (2 * std::numbers::pi));
  const at::Tensor kept = ((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)).clamp(0, 1);
  return (1 - kept) * plain / rope.factor + kept * plain;
}

RopeTable table_of(const at::Tensor& positions, const at::Tensor& frequency, at::ScalarType dtype) {
  const at::Tensor half = positions.unsqueeze(-1) * frequency;
  const at::Tensor angle = at::cat({half, half}, -1);
  return {angle.cos().to(dtype), angle.sin().to(dtype)};
}

}  // namespace

RopeTable rope_table(std::int64_t begin, std::int64_t count, const RopeOptions& options, at::ScalarType dtype,
                     at::Device device) {
  const at::Tensor frequency = frequencies(options, device);
  return table_of(at::arange(begin, begin + count, at::TensorOptions(at::kFloat).device(device)), frequency, dtype);
}

RopeTable rope_table(const at::Tensor& positions, const RopeOptions& options, at::ScalarType dtype) {
  return table_of(positions.to(at::kFloat), frequencies(options, positions.device()), dtype);
}

}  // namespace worker
