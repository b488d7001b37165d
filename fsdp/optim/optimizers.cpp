#include "fsdp/optim/optimizers.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

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

namespace {

std::vector<std::string> states_of(const SgdOptions& options) {
  if (options.momentum == 0) return {};
  return {"momentum_buffer"};
}

/// The entries of a fused call.
struct Lists {
  std::vector<at::Tensor> parameters, gradients, buffers;
};

}  // namespace

Sgd::Sgd(ShardedModel& model, const SgdOptions& options)
    : Optimizer(model, "sgd", states_of(options), options.weight_decay, options.group),
      momentum_(options.momentum),
      dampening_(options.dampening),
      nesterov_(options.nesterov) {
  TORCH_CHECK(!nesterov_ || (momentum_ > 0 && dampening_ == 0), "sgd: nesterov with momentum ", momentum_,
              " and dampening ", dampening_, "; want momentum above 0 and dampening 0");
}

void Sgd::update(Batch& batch, const Update& update) {
  const auto call = [&](at::TensorList parameters, at::TensorList gradients, at::TensorList buffers, bool first) {
    const auto make = [&](const auto& lr) {
      at::_fused_sgd_(parameters, gradients, buffers, update.weight_decay, momentum_, lr, dampening_, nesterov_,
                      /*maximize=*/false, first, update.grad_scale, update.found_inf);
    };
    if (parameters.empty()) return;
    if (update.lr_on_device) return make(*update.lr_on_device);
    make(update.lr);
  };
  if (momentum_ == 0) return call(batch.parameters, batch.gradients, {}, false);
  // Without dampening a first gradient enters the average like any other, as the buffer is zero.
  if (dampening_ == 0) return call(batch.parameters, batch.gradients, batch.states[0], false);
  const at::Tensor steps = at::stack(batch.steps).to(at::kCPU);
  Lists first, later;
  for (std::size_t i = 0; i < batch.parameters.size(); ++i) {
    Lists& lists = steps.const_data_ptr<float>()[i] <= 1 ? first : later;
    lists.parameters.push_back(batch.parameters[i]);
    lists.gradients.push_back(batch.gradients[i]);
    lists.buffers.push_back(batch.states[0][i]);
  }
  call(first.parameters, first.gradients, first.buffers, true);
  call(later.parameters, later.gradients, later.buffers, false);
}

}  // namespace fsdp
