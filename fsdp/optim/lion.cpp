#include "fsdp/optim/lion.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>

namespace fsdp {

Lion::Lion(ShardedModel& model, const LionOptions& options)
    : Optimizer(model, "lion", {"exp_avg"}, options.weight_decay, options.group),
      betas_{options.beta1, options.beta2} {}

void Lion::update(Batch& batch, const Update& update) {
  if (update.found_inf && update.found_inf->item<float>() != 0) return;
  if (update.grad_scale) at::_foreach_div_(batch.gradients, update.grad_scale->reshape({}));
  const Betas betas = batch.group.betas.value_or(betas_);
  std::vector<at::Tensor>& averages = batch.states[0];
  std::vector<at::Tensor> direction = at::_foreach_mul(averages, betas.first);
  at::_foreach_add_(direction, batch.gradients, 1 - betas.first);
  at::_foreach_sign_(direction);
  at::_foreach_mul_(batch.parameters, 1 - update.lr * update.weight_decay);
  at::_foreach_add_(batch.parameters, direction, -update.lr);
  at::_foreach_mul_(averages, betas.second);
  at::_foreach_add_(averages, batch.gradients, 1 - betas.second);
}

}  // namespace fsdp
