#include "worker/models/ops.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>

namespace worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    context->save_for_backward({x, weight, bias});
    const auto product = [&] { return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight); };
    if (!checkpoint_keeps(kLinear)) return product();
    return checkpointed(kLinear, [&] { return std::vector<at::Tensor>{product()}; })[0];
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &of_out = gradients[0];
    variable_list out(3);
    if (context->needs_input_grad(0)) out[0] = of_out.matmul(weight);
    if (bias.defined() && context->needs_input_grad(2)) out[2] = bias_gradient(bias, of_out.flatten(0, -2).sum(0));
    if (!context->needs_input_grad(1)) return out;
    const at::Tensor rows = of_out.flatten(0, -2).t(), columns = x.flatten(0, -2);
    if (GradientTarget target = gradient_target(weight); !target.memory.defined()) {
      out[1] = rows.mm(columns);
    } else if (target.is_fresh) {
      at::mm_out(target.memory, rows, columns);
      weight.mutable_grad() = target.memory;
    } else {
      target.memory.addmm_(rows, columns);
    }
    return out;
  }

  /// Puts the gradient in its place, or returns it. `value` is [out], so a temporary of it costs nothing.
  static at::Tensor bias_gradient(const at::Tensor& bias, at::Tensor value) {
    const GradientTarget target = gradient_target(bias);
    if (!target.memory.defined()) return value;
    if (target.is_fresh) {
      target.memory.copy_(value);
      bias.mutable_grad() = target.memory;
    } else {
      target.memory.add_(value);
    }
    return {};
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
    GradientTarget target = gradient_target(weight);
    if (!target.memory.defined()) {
      out[0] = at::embedding_dense_backward(of_out, ids, weight.size(0), /*padding_idx=*/-1, false);
      return out;
    }
    if (target.is_fresh) weight.mutable_grad() = target.memory.zero_();
    target.memory.index_add_(0, ids.flatten(), of_out.flatten(0, -2));
    return out;
  }
};

std::atomic<GradientPlaces> gradient_places{nullptr};
std::atomic<const ActivationCheckpoint*> activation_checkpoint{nullptr};

/// True if this backward computes gradients of all leaves, for parameter.grad() itself.
bool accumulates_plainly(const at::Tensor& parameter) {
  if (at::GradMode::is_enabled() || !parameter.is_leaf() || !torch::autograd::impl::hooks(parameter).empty())
    return false;
  // A backward for chosen tensors lists what it executes; one for all leaves lists nothing.
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  return chosen != nullptr && chosen->empty();
}

}  // namespace

void use_gradient_places(GradientPlaces places) {
  gradient_places.store(places);
}

void use_activation_checkpoint(const ActivationCheckpoint* checkpoint) {
  activation_checkpoint.store(checkpoint);
}

bool checkpoint_keeps(std::string_view operation) {
  const ActivationCheckpoint* checkpoint = activation_checkpoint.load();
  return checkpoint != nullptr && checkpoint->keeps(operation);
}

std::vector<at::Tensor> checkpointed(std::string_view operation,
                                     const std::function<std::vector<at::Tensor>()>& compute) {
  const ActivationCheckpoint* checkpoint = activation_checkpoint.load();
  return checkpoint == nullptr ? compute() : checkpoint->results_of(operation, compute);
}

GradientTarget gradient_target(const at::Tensor& parameter, bool any_dtype) {
  if (!accumulates_plainly(parameter)) return {};
  std::optional<at::Tensor> place;
  if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) {
    if (const GradientPlaces places = gradient_places.load()) place = places(parameter, any_dtype);
    if (!place) return {};  // somebody else's hook waits for the gradient
  }
  const at::Tensor& gradient = parameter.grad();
  const bool is_fresh = !gradient.defined() && place && place->defined();
  const at::Tensor& memory = is_fresh ? *place : gradient;
  if (!memory.defined() || memory.layout() != at::kStrided) return {};
  if (!any_dtype && memory.scalar_type() != parameter.scalar_type()) return {};
  return {memory, is_fresh};
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  // A node of autograd takes an absent tensor as an empty optional only.
  return LinearFunction::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids) {
  return EmbeddingFunction::apply(weight, ids);
}

std::string same_name(std::string_view in_file) {
  return std::string(in_file);
}

std::string no_tensor(std::string_view, const spec::Values&) {
  return {};
}

bool no_parameter(std::string_view) {
  return false;
}

std::string parameter_in(const FileNames& names, std::string_view in_file,
                         const std::function<bool(const std::string& name)>& is_parameter) {
  std::string plain = names.parameter_of(in_file);
  if (is_parameter(plain) || names.base.empty()) return plain;
  if (plain.starts_with(names.base)) {
    if (std::string without = plain.substr(names.base.size()); is_parameter(without)) return without;
  }
  if (std::string with = std::string(names.base) + plain; is_parameter(with)) return with;
  return plain;
}

void draw_normal(const std::string& name, const at::Tensor& values, double deviation, at::Generator& random) {
  if (name.ends_with("norm.weight") || name.ends_with("Norm.weight")) {
    values.fill_(1.0);
  } else if (name.ends_with(".bias")) {
    values.fill_(0.0);
  } else {
    values.normal_(0.0, deviation, random);
  }
}

}  // namespace worker
