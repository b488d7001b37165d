#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "fsdp/optim/grad_scaler.h"
#include "fsdp/text/json.h"
#include "spec/tables/training.h"

namespace worker {

/// The scale of the loss in a run, and the norm of the gradients without it. Only train.precision = "fp16" has one: its
/// smallest number is 6e-8, so gradients would underflow. The scale moves by the rule of torch.amp.GradScaler, with
/// torch's defaults.
///
/// [Note: floor] torch's scale may fall for ever. Here it stops at 1, where the gradients are what they are without
/// scaling. So a step that is skipped above the floor is part of the search for a scale, and one that is skipped at the
/// floor counts for train.max_skipped_steps, as in the other precisions.
class LossScale {
 public:
  static constexpr double kFloor = 1;

  LossScale(const spec::Training& train, at::Device device);

  /// `loss` times the scale.
  at::Tensor scaled(const at::Tensor& loss) const;
  /// The norm that train.clip_norm limits, of the gradients without the scale. Collective.
  fsdp::GradientNorm gradient_norm(fsdp::ShardedModel& sharded) const;
  /// The scale of the step that has just been computed, fp32, [1], on the device; nullopt: losses are not scaled.
  std::optional<at::Tensor> value() const;
  /// Ends a step.
  void update(const fsdp::GradientNorm& norm);

  /// Adds the state to what a checkpoint holds, and takes it from there. A checkpoint without it, of a run in another
  /// precision, leaves torch's first scale. load() throws JsonError for a state that save() did not write.
  void save(fsdp::Json& extra) const;
  void load(const fsdp::Json& extra);

 private:
  const spec::Training& train_;
  std::optional<fsdp::GradScaler> scaler_;
};

}  // namespace worker
