#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "fsdp/optim/grad_scaler.h"
#include "fsdp/optim/optimizers.h"
#include "fsdp/text/json.h"
#include "spec/tables/training_keys.h"
#include "worker/train/train_config.h"
#include "worker/train/train_parts.h"

namespace worker {

/// The learning rate of the step after `step` finished ones. A linear warm-up reaches learning_rate at step number
/// warmup_steps. Then the rate stays constant, or decays by a cosine or a line that would reach min_learning_rate at
/// `steps`, or is multiplied by gamma after each step_size steps and stays above min_learning_rate.
double learning_rate(const spec::Training& config, std::int64_t step);

/// The weight decay of the step after `step` finished ones. It goes from weight_decay by a cosine or a line that would
/// reach final_weight_decay at `steps`, or stays constant. There is no warm-up.
double weight_decay(const spec::Optimizer& optimizer, const spec::Training& config, std::int64_t step);

/// True if the model is evaluated after this step: at multiples of validation_every_steps, at the first step that
/// reaches a multiple of validation_every_epochs, and at the last step if it is evaluated at all.
bool evaluates(const spec::Training& config, double epochs_a_step, std::int64_t step);

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

/// The optimizer that the run file asks for, with the groups of the part. train.layer_decay lowers the rate by
/// Part::layers_above. `model` is that part, sharded, and must outlive the optimizer. Throws base::UsageError for a
/// train.layer_decay of a part that counts no layers.
std::unique_ptr<fsdp::Optimizer> make_optimizer(const RunConfig& config, const Part& part, fsdp::ShardedModel& model);

}  // namespace worker
