#include "models/head_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "models/fused_ops.h"
#include "models/ops.h"

#ifdef MUSTER_CUDA_KERNELS
#include <ATen/ops/empty.h>

#include "models/kernels/cross_entropy.h"
#include "models/kernels/launch.h"
#endif

namespace worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What the backward pass takes from the forward pass: gradients of the sum, undefined where nobody asks.
struct Gradients {
  at::Tensor x, weight;
};

#ifdef MUSTER_CUDA_KERNELS

/// The sum of the losses. With `gradient`, `scores` [positions, vocab] become their gradients.
at::Tensor losses_of(const at::Tensor& scores, const at::Tensor& targets, bool gradient) {
  const at::Tensor losses = at::empty({scores.size(0)}, scores.options().dtype(at::kFloat));
  const at::Tensor dense = targets.contiguous();
  kernels::cross_entropy(kernels::number_of(scores), scores.mutable_data_ptr(), dense.const_data_ptr<std::int64_t>(),
                         losses.mutable_data_ptr<float>(), scores.size(0), scores.size(1), kIgnoredTarget, gradient,
                         kernels::stream_of(scores));
  C10_CUDA_CHECK(cudaGetLastError());
  return losses.sum();
}

void add_positions_by_kernel(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets, at::Tensor& sum,
                             const at::Tensor& grad_x, const at::Tensor& grad_weight) {
  const at::Tensor scores = at::linear(x, weight);
  sum += losses_of(scores, targets, grad_x.defined() || grad_weight.defined());
  if (grad_weight.defined() && grad_weight.scalar_type() == x.scalar_type()) {
    grad_weight.addmm_(scores.t(), x);
  } else if (grad_weight.defined()) {
    grad_weight.add_(scores.t().mm(x));  // tensor cores multiply in x's type and add in fp32
  }
  if (grad_x.defined()) grad_x.copy_(scores.mm(weight));
}

#endif

/// Adds the loss of some positions to `sum`, and their gradients. `x` is [positions, hidden].
void add_positions(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets, at::Tensor& sum,
                   const at::Tensor& grad_x, const at::Tensor& grad_weight) {
#ifdef MUSTER_CUDA_KERNELS
  if (has_kernels(x.device(), x.scalar_type()))
    return add_positions_by_kernel(x, weight, targets, sum, grad_x, grad_weight);
#endif
  at::Tensor scores = at::linear(x, weight).to(at::kFloat);
  const at::Tensor counts = targets.ne(kIgnoredTarget).to(at::kFloat);
  const at::Tensor index = targets.clamp_min(0).unsqueeze(-1);
  const at::Tensor total = at::logsumexp(scores, {-1}, /*keepdim=*/true);
  sum += ((total - scores.gather(-1, index)).squeeze(-1) * counts).sum();
  if (!grad_x.defined() && !grad_weight.defined()) return;
  scores.sub_(total).exp_();  // probabilities
  scores.scatter_add_(-1, index, at::full_like(index, -1, scores.options()));
  scores.mul_(counts.unsqueeze(-1));
  if (grad_weight.defined() && grad_weight.scalar_type() == x.scalar_type()) {
    grad_weight.addmm_(scores.t(), x);
  } else if (grad_weight.defined()) {
    grad_weight.addmm_(scores.t(), x.to(at::kFloat));
  }
  if (grad_x.defined()) grad_x.copy_(scores.to(x.scalar_type()).mm(weight));
}

class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& targets, std::int64_t most_logits, bool wants_x, bool wants_weight) {
    const at::Tensor flat = x.flatten(0, -2), flat_targets = targets.flatten();
    const std::int64_t positions = flat.size(0), vocab = weight.size(0);
    Gradients gradients;
    if (wants_x) gradients.x = at::empty_like(flat);
    if (wants_weight) gradients.weight = at::zeros(weight.sizes(), weight.options().dtype(at::kFloat));
    at::Tensor sum = at::zeros({}, flat.options().dtype(at::kFloat));
    if (most_logits == 0) most_logits = x.is_cuda() ? kMostLogitsOnGpu : kMostLogits;
    const std::int64_t chunk = std::max<std::int64_t>(1, most_logits / vocab);
    for (std::int64_t begin = 0; begin < positions; begin += chunk) {
      const std::int64_t count = std::min(chunk, positions - begin);
      add_positions(flat.narrow(0, begin, count), weight, flat_targets.narrow(0, begin, count), sum,
                    wants_x ? gradients.x.narrow(0, begin, count) : at::Tensor(), gradients.weight);
    }
    if (wants_x) gradients.x = gradients.x.view(x.sizes());
    if (wants_weight) gradients.weight = gradients.weight.to(weight.scalar_type());
    context->save_for_backward({gradients.x, gradients.weight, weight});
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& of_sum) {
    const auto saved = context->get_saved_variables();
    const auto times = [&](const at::Tensor& gradient) {
      return gradient.defined() ? gradient * of_sum[0].to(gradient.scalar_type()) : at::Tensor();
    };
    GradientTarget target = saved[1].defined() ? gradient_target(saved[2]) : GradientTarget();
    if (!target.memory.defined()) return {times(saved[0]), times(saved[1]), {}, {}, {}, {}};
    const at::Tensor factor = of_sum[0].to(saved[1].scalar_type());
    if (target.is_fresh) {
      at::mul_out(target.memory, saved[1], factor);
      saved[2].mutable_grad() = target.memory;
    } else {
      target.memory.addcmul_(saved[1], factor);
    }
    return {times(saved[0]), {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                                std::int64_t most_logits) {
  TORCH_CHECK(x.dim() >= 2 && targets.sizes() == x.sizes().slice(0, x.dim() - 1), "linear_cross_entropy: x is ",
              x.sizes(), " and targets are ", targets.sizes(), "; want one target for each position of x");
  const bool records = at::GradMode::is_enabled();
  return LinearCrossEntropy::apply(x, weight, targets, most_logits, records && x.requires_grad(),
                                   records && weight.requires_grad());
}

}  // namespace worker
