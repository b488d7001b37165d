#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "spec/rope_scaling.h"
#include "worker/models/fused_ops.h"

namespace worker {

/// Of rotary position embedding.
struct RopeOptions {
  std::int64_t dim = 0;  ///< rotated elements of a head, an even number
  double theta = 10000;
  spec::RopeScaling type = spec::RopeScaling::kDefault;
  double factor = 1;  ///< of kLinear and kLlama3
  // Of kLlama3: a wavelength above original_positions / low_freq_factor is long, and one below original_positions /
  // high_freq_factor is short.
  double low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_positions = 0;
};

/// The angles of the positions begin, begin + 1, .., as tables [count, dim]. They are computed in fp32 on `device` and
/// cast to `dtype`.
RopeTable rope_table(std::int64_t begin, std::int64_t count, const RopeOptions& options, at::ScalarType dtype,
                     at::Device device);

/// The angles of these positions, int64 [positions] or [batch, positions], as tables [.., positions, dim] on their
/// device.
RopeTable rope_table(const at::Tensor& positions, const RopeOptions& options, at::ScalarType dtype);

}  // namespace worker
