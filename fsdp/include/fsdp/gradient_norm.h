#pragma once
#include <ATen/core/Tensor.h>

#include "fsdp/fully_shard.h"

namespace fsdp {

/// The sum of absolute values, the Euclidean norm, or the largest absolute value.
enum class NormType { kOne, kTwo, kInf };

/// The norm of all gradients, and what Optimizer::step() takes to clip by it. Tensors of one element on the model's
/// device. Equal on all ranks.
struct GradientNorm {
  at::Tensor norm;  // fp64
  /// fp32, 1 or more: divided by it, the gradients have at most the norm asked for, as after
  /// torch.nn.utils.clip_grad_norm_. Undefined when no norm was asked for.
  at::Tensor grad_scale;
  at::Tensor found_inf;  // fp32: 1 when the norm is not finite, else 0
};

/// The norm over all parameters and ranks. max_norm <= 0 measures only. Changes no gradient and does not wait for the
/// device. Parameters that took part in no backward count 0. A NaN counts as infinite in the norm kInf. Collective: one
/// all-reduce. Throws c10::Error when a backward of this step threw.
GradientNorm gradient_norm(ShardedModel& model, double max_norm = 0, NormType type = NormType::kTwo);

}  // namespace fsdp
