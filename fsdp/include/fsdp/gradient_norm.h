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
  /// fp32: divided by it, the gradients are without the loss's scale, and have at most the norm asked for, as after
  /// torch.nn.utils.clip_grad_norm_. Without a scale 1 or more. Undefined when neither a norm nor a scale was given.
  at::Tensor grad_scale;
  at::Tensor found_inf;  // fp32: 1 when the norm is not finite, else 0
};

/// The norm over all parameters and ranks. max_norm <= 0 measures only. Changes no gradient and does not wait for the
/// device. Parameters that took part in no backward count 0. A NaN counts as infinite in the norm kInf. Collective: one
/// all-reduce. Throws c10::Error when a backward of this step threw.
/// `scale`: what the loss was multiplied by, fp32 of one element on the model's device; the norm and max_norm are those
/// of the gradients divided by it. See GradScaler.
GradientNorm gradient_norm(ShardedModel& model, double max_norm = 0, NormType type = NormType::kTwo,
                           const at::Tensor& scale = {});

}  // namespace fsdp
