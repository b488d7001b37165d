#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "fsdp/optim/gradient_norm.h"
#include "fsdp/text/json.h"

namespace fsdp {

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
