#include "models/ops.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

namespace worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return at::linear(x, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &of_out = gradients[0];
    variable_list out(2);
    if (context->needs_input_grad(0)) out[0] = of_out.matmul(weight);
    if (!context->needs_input_grad(1)) return out;
    const at::Tensor rows = of_out.flatten(0, -2).t(), columns = x.flatten(0, -2);
    if (adds_in_place(weight)) {
      weight.grad().addmm_(rows, columns);
    } else {
      out[1] = rows.mm(columns);
    }
    return out;
  }
};

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& ids) {
    context->save_for_backward({weight, ids});
    return at::embedding(weight, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &weight = saved[0], &ids = saved[1], &of_out = gradients[0];
    variable_list out(2);
    if (adds_in_place(weight)) {
      weight.grad().index_add_(0, ids.flatten(), of_out.flatten(0, -2));
    } else {
      out[0] = at::embedding_dense_backward(of_out, ids, weight.size(0), /*padding_idx=*/-1, false);
    }
    return out;
  }
};

}  // namespace

bool adds_in_place(const at::Tensor& parameter) {
  if (at::GradMode::is_enabled() || !parameter.is_leaf()) return false;
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined() || gradient.layout() != at::kStrided || gradient.scalar_type() != parameter.scalar_type()) {
    return false;
  }
  if (!torch::autograd::impl::hooks(parameter).empty() ||
      torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) {
    return false;
  }
  // A backward for chosen tensors lists what it executes; one for all leaves lists nothing.
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  return chosen != nullptr && chosen->empty();
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) {
  return LinearFunction::apply(x, weight);
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids) {
  return EmbeddingFunction::apply(weight, ids);
}

}  // namespace worker
