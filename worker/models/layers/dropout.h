#pragma once

#include <ATen/core/Tensor.h>

namespace worker {

/// Sets each element to zero with probability `p`, 0 <= p < 1, and divides the others by 1 - p (Srivastava et al.,
/// 2014). Returns x itself for p = 0 and outside of training, and then draws no random number.
at::Tensor drop_out(const at::Tensor& x, double p, bool training);

}  // namespace worker
