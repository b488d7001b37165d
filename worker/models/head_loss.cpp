#include "worker/models/head_loss.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "worker/models/fused_ops.h"
#include "worker/models/kernels/cpu_kernels.h"
#include "worker/models/ops.h"

#ifdef MUSTER_CUDA_KERNELS
#include "worker/models/kernels/kernel_launch.h"
#endif

namespace worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Head {
  at::Tensor weight, bias;  // bias: undefined for none

  at::Tensor scores(const at::Tensor& x) const {
    return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
  }
};

/// Gradients of the sum that the backward pass takes from the forward pass, undefined where nobody asks.
struct Gradients {
  at::Tensor x, weight, bias;

  bool wanted() const { return x.defined() || weight.defined() || bias.defined(); }
  /// For some of the positions.
  Gradients narrow(std::int64_t begin, std::int64_t count) const {
    return {x.defined() ? x.narrow(0, begin, count) : at::Tensor(), weight, bias};
  }
};

/// True where one kernel computes the losses of scores, and their gradients over them.
bool has_loss_kernel(const at::Tensor& scores) {
  if (scores.is_cpu()) return scores.scalar_type() == at::kFloat;
  return has_kernels(scores.device(), scores.scalar_type());
}

/// The sum of the losses by the kernel. With `gradient`, `scores` [positions, vocab] become their gradients.
at::Tensor losses_of(const at::Tensor& scores, const at::Tensor& targets, bool gradient) {
  const at::Tensor losses = at::empty({scores.size(0)}, scores.options().dtype(at::kFloat));
  const at::Tensor dense = targets.contiguous();
  const std::int64_t vocab = scores.size(1);
  const auto* target = dense.const_data_ptr<std::int64_t>();
#ifdef MUSTER_CUDA_KERNELS
  if (scores.is_cuda()) {
    kernels::cross_entropy(kernels::number_of(scores), scores.mutable_data_ptr(), target,
                           losses.mutable_data_ptr<float>(), scores.size(0), vocab, data::order::kNoTarget, gradient,
                           kernels::stream_of(scores));
    C10_CUDA_CHECK(cudaGetLastError());
    return losses.sum();
  }
#endif
  if (computes_nothing()) return losses.sum();
  for (std::int64_t i = 0; i < dense.numel(); ++i)
    TORCH_CHECK_INDEX(target[i] == data::order::kNoTarget || (target[i] >= 0 && target[i] < vocab),
                      "linear_cross_entropy: target ", target[i], "; want 0 to ", vocab - 1);
  float *score = scores.mutable_data_ptr<float>(), *loss = losses.mutable_data_ptr<float>();
  at::parallel_for(0, scores.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::cpu::cross_entropy(score + begin * vocab, target + begin, loss + begin, end - begin, vocab,
                                data::order::kNoTarget, gradient);
  });
  return losses.sum();
}

/// The sum and the gradients by LibTorch's operations, for fp32 scores.
at::Tensor losses_by_operations(const at::Tensor& scores, const at::Tensor& targets, bool gradient) {
  const at::Tensor counts = targets.ne(data::order::kNoTarget).to(at::kFloat);
  const at::Tensor index = targets.clamp_min(0).unsqueeze(-1);
  const at::Tensor total = at::logsumexp(scores, {-1}, /*keepdim=*/true);
  const at::Tensor sum = ((total - scores.gather(-1, index)).squeeze(-1) * counts).sum();
  if (!gradient) return sum;
  scores.sub_(total).exp_();  // probabilities
  scores.scatter_add_(-1, index, at::full_like(index, -1, scores.options()));
  scores.mul_(counts.unsqueeze(-1));
  return sum;
}

/// Adds the loss of some positions to `sum`, and their gradients. `x` is [positions, hidden].
void add_positions(const at::Tensor& x, const Head& head, const at::Tensor& targets, at::Tensor& sum,
                   const Gradients& into) {
  at::Tensor scores = head.scores(x);
  const bool on_gpu = x.is_cuda() && has_loss_kernel(scores);
  if (!on_gpu) scores = scores.to(at::kFloat);
  sum += (has_loss_kernel(scores) ? losses_of : losses_by_operations)(scores, targets, into.wanted());
  if (into.weight.defined() && into.weight.scalar_type() == x.scalar_type()) {
    into.weight.addmm_(scores.t(), x);
  } else if (into.weight.defined() && on_gpu) {
    into.weight.add_(scores.t().mm(x));  // tensor cores multiply in x's type and add in fp32
  } else if (into.weight.defined()) {
    into.weight.addmm_(scores.t(), x.to(at::kFloat));
  }
  if (into.bias.defined()) into.bias.add_(scores.sum(0, /*keepdim=*/false, at::kFloat));
  if (into.x.defined()) into.x.copy_(scores.to(x.scalar_type()).mm(head.weight));
}

/// Gives a parameter its gradient in place and returns nothing, or returns the gradient. A head that is tied to the
/// embedding must give it at once: autograd would keep it until the embedding's is there, which is the end of backward.
at::Tensor placed(const at::Tensor& parameter, const at::Tensor& of_sum, const at::Tensor& gradient) {
  if (!gradient.defined()) return {};
  const at::Tensor factor = of_sum.to(gradient.scalar_type());
  const GradientTarget target = gradient_target(parameter, /*any_dtype=*/true);
  if (!target.memory.defined()) return gradient * factor;
  if (target.is_fresh) {
    at::Tensor memory = target.memory;
    at::mul_out(memory, gradient, factor);
    parameter.mutable_grad() = memory;
  } else if (target.memory.scalar_type() == gradient.scalar_type()) {
    target.memory.addcmul_(gradient, factor);
  } else {
    target.memory.add_(gradient * factor);
  }
  return {};
}

class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias, const at::Tensor& targets,
                            std::int64_t most_logits, bool wants_x, bool wants_weight, bool wants_bias) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    const at::Tensor flat = x.flatten(0, -2), flat_targets = targets.flatten();
    const std::int64_t positions = flat.size(0), vocab = weight.size(0);
    Gradients gradients;
    if (wants_x) gradients.x = at::empty_like(flat);
    if (wants_weight) gradients.weight = at::zeros(weight.sizes(), weight.options().dtype(at::kFloat));
    if (wants_bias) gradients.bias = at::zeros(bias.sizes(), bias.options().dtype(at::kFloat));
    at::Tensor sum = at::zeros({}, flat.options().dtype(at::kFloat));
    if (most_logits == 0) most_logits = x.is_cuda() ? kMostLogitsOnGpu : kMostLogits;
    const std::int64_t chunk = std::max<std::int64_t>(1, most_logits / vocab);
    for (std::int64_t begin = 0; begin < positions; begin += chunk) {
      const std::int64_t count = std::min(chunk, positions - begin);
      add_positions(flat.narrow(0, begin, count), {weight, bias}, flat_targets.narrow(0, begin, count), sum,
                    gradients.narrow(begin, count));
    }
    if (wants_x) gradients.x = gradients.x.view(x.sizes());
    if (wants_weight) gradients.weight = gradients.weight.to(weight.scalar_type());
    if (wants_bias) gradients.bias = gradients.bias.to(bias.scalar_type());
    context->save_for_backward({gradients.x, gradients.weight, weight, gradients.bias, bias});
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& of_sum) {
    const auto saved = context->get_saved_variables();
    const at::Tensor of_x = saved[0].defined() ? saved[0] * of_sum[0].to(saved[0].scalar_type()) : at::Tensor();
    return {of_x, placed(saved[2], of_sum[0], saved[1]), placed(saved[4], of_sum[0], saved[3]), {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                                const at::Tensor& bias, std::int64_t most_logits) {
  TORCH_CHECK(x.dim() >= 2 && targets.sizes() == x.sizes().slice(0, x.dim() - 1), "linear_cross_entropy: x is ",
              x.sizes(), " and targets are ", targets.sizes(), "; want one target for each position of x");
  const bool records = at::GradMode::is_enabled();
  // A node of autograd takes an absent tensor as an empty optional only.
  return LinearCrossEntropy::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, targets, most_logits,
                                   records && x.requires_grad(), records && weight.requires_grad(),
                                   records && bias.defined() && bias.requires_grad());
}

at::Tensor class_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& class_weights) {
  TORCH_CHECK(logits.dim() == 2 && labels.dim() == 1 && labels.size(0) == logits.size(0), "class_loss: logits are ",
              logits.sizes(), " and labels ", labels.sizes(), "; want [batch, classes] and [batch]");
  const auto weights = class_weights.defined() ? std::optional<at::Tensor>(class_weights) : std::nullopt;
  return at::cross_entropy_loss(logits.to(at::kFloat), labels, weights, at::Reduction::Sum, data::order::kNoTarget);
}

double class_weight(const at::Tensor& labels, const at::Tensor& class_weights) {
  const at::Tensor dense = labels.contiguous();
  const auto* values = dense.const_data_ptr<std::int64_t>();
  const at::Tensor weights = class_weights.defined() ? class_weights.to(at::kDouble).contiguous() : class_weights;
  double sum = 0;
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    if (values[i] == data::order::kNoTarget) continue;
    if (!weights.defined()) {
      sum += 1;
      continue;
    }
    TORCH_CHECK(values[i] >= 0 && values[i] < weights.numel(), "class_weight: label ", values[i], " is none of the ",
                weights.numel(), " classes; want 0 to ", weights.numel() - 1);
    sum += weights.const_data_ptr<double>()[values[i]];
  }
  return sum;
}

}  // namespace worker
