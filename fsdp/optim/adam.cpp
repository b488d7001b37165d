#include "fsdp/optim/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

namespace fsdp {

Adam::Adam(ShardedModel& model, const AdamOptions& options) : Adam(model, "adam", options, false) {}

Adam::Adam(ShardedModel& model, const char* name, const AdamOptions& options, bool decoupled_weight_decay)
    : Optimizer(model, name, {"exp_avg", "exp_avg_sq"}, options.weight_decay, options.group),
      betas_{options.beta1, options.beta2},
      eps_(options.eps),
      decoupled_weight_decay_(decoupled_weight_decay) {}

void Adam::update(Batch& batch, const Update& update) {
  const Betas betas = batch.group.betas.value_or(betas_);
  const auto make = [&](const auto& call, const auto& lr) {
    call(batch.parameters, batch.gradients, batch.states[0], batch.states[1], {}, batch.steps, lr, betas.first,
         betas.second, update.weight_decay, eps_, /*amsgrad=*/false, /*maximize=*/false, update.grad_scale,
         update.found_inf);
  };
  if (update.lr_on_device) {
    make(decoupled_weight_decay_ ? at::_ops::_fused_adamw__tensor_lr::call : at::_ops::_fused_adam__tensor_lr::call,
         *update.lr_on_device);
  } else {
    make(decoupled_weight_decay_ ? at::_ops::_fused_adamw_::call : at::_ops::_fused_adam_::call, update.lr);
  }
}

AdamW::AdamW(ShardedModel& model, const AdamWOptions& options) : Adam(model, "adamw", options, true) {}

}  // namespace fsdp
