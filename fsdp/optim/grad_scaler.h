#pragma once

#include <cstdint>
#include <limits>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/text/json.h"

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

/// The defaults are those of torch.amp.GradScaler.
struct GradScalerOptions {
  /// The first scale.
  double init_scale = 65536;
  /// Multiplies the scale after growth_interval steps in a row without an infinite gradient. Above 1.
  double growth_factor = 2;
  /// Multiplies the scale after a step with an infinite gradient. Above 0 and below 1.
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
  /// The scale never falls below it. torch.amp.GradScaler has no such floor: 0.
  double min_scale = 0;
};

/// Scales the loss of a training in fp16, so that small gradients do not underflow, as ShardedGradScaler of PyTorch's
/// FSDP. The gradients are divided by the scale again in the optimizer's step. A step in which a gradient of any rank
/// is infinite or NaN changes no weight, and the scale falls. After many good steps in a row the scale grows.
///
///   scaler.scale(loss).backward();
///   const fsdp::GradientNorm norm = scaler.gradient_norm(model, max_norm);
///   optimizer.step(lr, norm.grad_scale, norm.found_inf);
///   scaler.update(norm.found_inf);
///
/// Scale and growth tracker are tensors on the model's device, so nothing but state() waits for it. All ranks must pass
/// equal options and make equal calls; then they have equal scales.
///
/// Not thread-safe.
class GradScaler {
 public:
  /// Throws c10::Error naming an option that is out of its range.
  explicit GradScaler(at::Device device, const GradScalerOptions& options = {});

  /// The loss, or any tensor, times the scale, in the dtype of `loss`. Autograd records it. All micro-batches of a step
  /// get the same scale.
  at::Tensor scale(const at::Tensor& loss) const;
  /// fp32, [1], on the device.
  const at::Tensor& scale() const { return scale_; }

  /// fsdp::gradient_norm() of the gradients divided by the scale, without changing them. Its grad_scale divides by the
  /// scale and clips, and its found_inf is agreed upon by all ranks. Collective, as that.
  GradientNorm gradient_norm(ShardedModel& model, double max_norm = 0, double order = kEuclideanNorm) const;

  /// Ends a step: the rule of torch.amp.GradScaler.update(). `found_inf` is fp32, one element, equal on all ranks. With
  /// several optimizers pass their maximum.
  void update(const at::Tensor& found_inf);

  /// {"scale": 65536, "growth_tracker": 12}, for CheckpointState::extra. Waits for the device.
  Json state() const;
  /// Continues from state(), bit for bit. Throws JsonError when a member is missing or out of its range.
  void load(const Json& state);

 private:
  GradScalerOptions options_;
  at::Tensor scale_;           // fp32, [1]
  at::Tensor growth_tracker_;  // int32, [1]: good steps in a row since the last change of the scale
};

}  // namespace fsdp
