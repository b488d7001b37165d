#include "fsdp/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

namespace fsdp {

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
