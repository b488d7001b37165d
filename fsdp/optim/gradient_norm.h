#pragma once
#include <ATen/core/Tensor.h>

#include <limits>

#include "fsdp/engine/fully_shard.h"

namespace fsdp {

/// The order of a norm: 1 is the sum of absolute values, 2 the Euclidean norm, infinity the largest absolute value, and
/// p the p-th root of the sum of p-th powers. As `norm_type` of torch.nn.utils.clip_grad_norm_.
inline constexpr double kEuclideanNorm = 2;
inline constexpr double kLargestNorm = std::numeric_limits<double>::infinity();

/// The norm of all gradients, and what Optimizer::step() takes to clip by it. Tensors of one element on the model's
/// device. Equal on all ranks.
struct GradientNorm {
  at::Tensor norm;  // fp64
  /// fp32: divided by it, the gradients are without the loss's scale, and have at most the norm asked for, as after
  /// torch.nn.utils.clip_grad_norm_. Without a scale 1 or more. Undefined when neither a norm nor a scale was given.
  at::Tensor grad_scale;
  at::Tensor found_inf;  // fp32: 1 when the norm is not finite, else 0
};

/// The norm over all parameters and ranks, of any `order` above 0. max_norm <= 0 measures only. Changes no gradient and
/// does not wait for the device. Parameters that took part in no backward count 0. A NaN counts as infinite in the
/// largest norm. Collective: one all-reduce for the orders 1, 2 and infinity. Other orders make two, and need memory
/// for a copy of a segment's gradients, because powers are taken of gradients divided by the largest one: so none
/// overflows, and the largest never vanishes. Throws c10::Error for another order, and when a backward of this step
/// threw. `scale`: what the loss was multiplied by, fp32 of one element on the model's device; the norm and max_norm
/// are those of the gradients divided by it. See GradScaler.
GradientNorm gradient_norm(ShardedModel& model, double max_norm = 0, double order = kEuclideanNorm,
                           const at::Tensor& scale = {});

}  // namespace fsdp
