#include "worker/models/ops.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>

#include "worker/models/fused_ops.h"

// oneDNN's product, which LibTorch itself calls for bf16. No header of LibTorch declares it, and another LibTorch than
// the one of the build may lack it: then the address is null.
namespace at::native {
[[gnu::weak]] void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);
}

namespace worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Products below as many multiplications end before oneDNN has found its code for them.
constexpr std::int64_t kLeastOfOneDnn = 1 << 20;

/// True where oneDNN multiplies in fp32: LibTorch's library for that, MKL, has only code of AVX2 for processors that
/// are not Intel's.
bool takes_onednn(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
#ifdef __x86_64__
  static const bool has_onednn = at::native::mkldnn_matmul != nullptr && at::hasMKLDNN() && __builtin_cpu_is("amd") &&
                                 __builtin_cpu_supports("avx512f");
  const auto fits = [](const at::Tensor& t) { return t.is_cpu() && t.scalar_type() == at::kFloat; };
  return has_onednn && at::globalContext().userEnabledMkldnn() && fits(out) && fits(a) && fits(b) && a.size(0) >= 16 &&
         out.numel() * a.size(1) >= kLeastOfOneDnn && out.is_contiguous() && !computes_nothing();
#else
  return false;
#endif
}

bool is_wide_sum(const at::Tensor& out, const at::Tensor& a) {
  return out.is_cuda() && out.scalar_type() == at::kFloat &&
         (a.scalar_type() == at::kBFloat16 || a.scalar_type() == at::kHalf);
}

void multiply_by_onednn(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, float beta) {
  at::native::mkldnn_matmul(a, b, out, beta, 1.0f);
  if (!out.is_inference()) torch::autograd::impl::bump_version(out);
}

/// out = a b. On GPUs products of bf16 and fp16 are summed into fp32 without being rounded before.
void multiply(at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
  if (takes_onednn(out, a, b)) {
    multiply_by_onednn(out, a, b, 0);
  } else if (out.scalar_type() == a.scalar_type()) {
    at::mm_out(out, a, b);
  } else if (is_wide_sum(out, a)) {
    at::mm_out(out, a, b, at::kFloat);
  } else {
    out.copy_(a.mm(b));
  }
}

/// out += a b.
void add_product(at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
  if (takes_onednn(out, a, b)) {
    multiply_by_onednn(out, a, b, 1);
  } else if (out.scalar_type() == a.scalar_type()) {
    out.addmm_(a, b);
  } else if (is_wide_sum(out, a)) {
    at::addmm_out(out, out, a, b, at::kFloat);
  } else {
    out.add_(a.mm(b));
  }
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  multiply(out, a, b);
  return out;
}

/// x w for rows [.., k] and a matrix [k, n].
at::Tensor rows_times(const at::Tensor& x, const at::Tensor& w) {
  if (at::GradMode::is_enabled()) return x.matmul(w);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = w.size(1);
  return product(x.flatten(0, -2), w).view(sizes);
}

/// The place for the gradient of a weight. GPUs sum in the place's dtype.
GradientTarget target_of_weight(const at::Tensor& weight) {
  return gradient_target(weight, /*any_dtype=*/weight.is_cuda());
}

/// rows columns is the gradient of a weight. Puts it where it belongs, or returns it.
at::Tensor weight_gradient(const at::Tensor& weight, const GradientTarget& target, const at::Tensor& rows,
                           const at::Tensor& columns) {
  if (!target.memory.defined()) return at::GradMode::is_enabled() ? rows.mm(columns) : product(rows, columns);
  if (!target.is_fresh) {
    add_product(target.memory, rows, columns);
    return {};
  }
  multiply(target.memory, rows, columns);
  weight.mutable_grad() = target.memory;
  return {};
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    context->save_for_backward({x, weight, bias});
    const auto result = [&] { return bias.defined() ? at::linear(x, weight, bias) : rows_times(x, weight.t()); };
    if (!checkpoint_keeps(kLinear)) return result();
    return checkpointed(kLinear, [&] { return std::vector<at::Tensor>{result()}; })[0];
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &of_out = gradients[0];
    variable_list out(3);
    if (context->needs_input_grad(0)) out[0] = rows_times(of_out, weight);
    if (bias.defined() && context->needs_input_grad(2)) out[2] = bias_gradient(bias, of_out.flatten(0, -2).sum(0));
    if (!context->needs_input_grad(1)) return out;
    out[1] = weight_gradient(weight, target_of_weight(weight), of_out.flatten(0, -2).t(), x.flatten(0, -2));
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

/// The matrices as one [sum of rows, columns], where they follow each other in memory; else undefined. The view has a
/// version of its own.
at::Tensor joint_view(const variable_list& parts) {
  const at::Tensor& first = parts.front();
  std::int64_t rows = 0, end = first.defined() ? first.storage_offset() : 0;
  for (const at::Tensor& part : parts) {
    if (!part.defined() || part.dim() != 2 || !part.is_contiguous() || part.numel() == 0 ||
        part.size(1) != first.size(1) || part.scalar_type() != first.scalar_type() || !part.is_alias_of(first) ||
        part.storage_offset() != end)
      return {};
    end += part.numel();
    rows += part.size(0);
  }
  if (first.storage().nbytes() < static_cast<std::size_t>(end) * first.element_size()) return {};  // closed
  return first.variable_data().as_strided({rows, first.size(1)}, {first.size(1), 1}, first.storage_offset());
}

/// Linear layers of one input whose weights follow each other in memory, as one product.
struct JointLinear : torch::autograd::Function<JointLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& first,
                            const at::Tensor& second, const std::optional<at::Tensor>& third) {
    variable_list saved{x, first, second};
    if (third) saved.push_back(*third);
    const at::Tensor joint = joint_view({saved.begin() + 1, saved.end()});
    context->save_for_backward(std::move(saved));
    if (!checkpoint_keeps(kLinear)) return rows_times(x, joint.t());
    return checkpointed(kLinear, [&] { return std::vector<at::Tensor>{rows_times(x, joint.t())}; })[0];
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &of_out = gradients[0];
    const variable_list weights(saved.begin() + 1, saved.end());
    variable_list out(4);
    if (context->needs_input_grad(0)) {
      at::Tensor joint = at::GradMode::is_enabled() ? at::Tensor() : joint_view(weights);
      if (!joint.defined()) joint = at::cat(weights);
      out[0] = rows_times(of_out, joint);
    }
    const at::Tensor rows = of_out.flatten(0, -2).t(), columns = x.flatten(0, -2);
    std::vector<GradientTarget> targets(weights.size());
    variable_list places(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (!context->needs_input_grad(i + 1)) continue;
      targets[i] = target_of_weight(weights[i]);
      places[i] = targets[i].memory;
    }
    const bool is_fresh = targets.front().is_fresh;
    const bool alike =
        std::all_of(targets.begin(), targets.end(), [&](const auto& target) { return target.is_fresh == is_fresh; });
    if (const at::Tensor place = alike ? joint_view(places) : at::Tensor(); place.defined()) {
      if (is_fresh) {
        multiply(place, rows, columns);
      } else {
        add_product(place, rows, columns);
      }
      for (std::size_t i = 0; i < weights.size(); ++i) {
        torch::autograd::impl::bump_version(places[i]);
        if (is_fresh) weights[i].mutable_grad() = places[i];
      }
      return out;
    }
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::int64_t count = weights[i].size(0);
      if (context->needs_input_grad(i + 1))
        out[i + 1] = weight_gradient(weights[i], targets[i], rows.narrow(0, begin, count), columns);
      begin += count;
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

at::Tensor joint_linear(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  TORCH_CHECK(weights.size() == 2 || weights.size() == 3, "joint_linear: got ", weights.size(),
              " weights; want two or three");
  if (!joint_view(weights).defined()) return {};
  return JointLinear::apply(x, weights[0], weights[1], weights.size() == 3 ? std::optional(weights[2]) : std::nullopt);
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
