#include "fsdp/optim/gradient_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <cmath>

namespace fsdp {

namespace {

constexpr double kClipEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_

/// This rank's reduced gradients, one for each segment that has some.
std::vector<at::Tensor> gradients_of(const ShardedModel& model) {
  std::vector<at::Tensor> gradients;
  for (const auto& unit : model.units())
    for (const auto& segment : unit->segments())
      if (segment->gradient_shard().defined()) gradients.push_back(segment->gradient_shard());
  return gradients;
}

at::Tensor nothing(const Communicator& ranks) {
  return at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(ranks.device()));
}

/// The norms of segments, fp64, on the ranks' device.
at::Tensor norms_of(const std::vector<at::Tensor>& gradients, double order, const Communicator& ranks) {
  return at::stack(at::_foreach_norm(gradients, order)).to(at::kDouble).to(ranks.device());
}

/// The largest absolute value on any rank. A maximum over ranks may lose a NaN, so a NaN is infinite here.
at::Tensor largest_of(const std::vector<at::Tensor>& gradients, Communicator& ranks) {
  at::Tensor largest = nothing(ranks);
  if (!gradients.empty())
    largest = at::nan_to_num(norms_of(gradients, kLargestNorm, ranks), kLargestNorm, kLargestNorm).max().reshape({1});
  ranks.all_reduce(largest, Reduction::kMax);
  return largest;
}

/// The norm of order 1 or 2: powers of the segments' norms add up.
at::Tensor plain_norm(const std::vector<at::Tensor>& gradients, double order, Communicator& ranks) {
  at::Tensor total = nothing(ranks);
  if (!gradients.empty()) {
    const at::Tensor norms = norms_of(gradients, order, ranks);
    total = (order == 2 ? norms.square() : norms).sum().reshape({1});
  }
  ranks.all_reduce(total, Reduction::kSum);
  return order == 2 ? total.sqrt_() : total;
}

/// The norm of any order: the largest value times the norm of the gradients divided by it.
at::Tensor power_norm(const std::vector<at::Tensor>& gradients, double order, Communicator& ranks) {
  const at::Tensor largest = largest_of(gradients, ranks);
  const at::Tensor divisor =
      at::where(at::isfinite(largest).logical_and_(largest.gt(0)), largest, at::ones_like(largest));
  at::Tensor total = nothing(ranks);
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor parts = gradient.div(divisor.to(gradient.options())).abs_().pow_(order);
    total.add_(parts.sum(at::kDouble).to(ranks.device()));
  }
  ranks.all_reduce(total, Reduction::kSum);
  return total.pow_(1 / order).mul_(divisor);
}

at::Tensor norm_of(const std::vector<at::Tensor>& gradients, double order, Communicator& ranks) {
  if (std::isinf(order)) return largest_of(gradients, ranks);
  return order == 1 || order == 2 ? plain_norm(gradients, order, ranks) : power_norm(gradients, order, ranks);
}

}  // namespace

GradientNorm gradient_norm(ShardedModel& model, double max_norm, double order, const at::Tensor& scale) {
  TORCH_CHECK(order > 0, "gradient_norm: order ", order, " of the norm: want a number above 0, or infinity");
  const Tracer::Scope span(model.mesh().tracer().get(), "gradient norm", "");
  model.complete_gradients("gradient_norm");
  const at::NoGradGuard no_grad;
  at::Tensor total = norm_of(gradients_of(model), order, model.mesh().shard());
  if (scale.defined()) total.div_(scale);
  GradientNorm out;
  out.norm = total;
  out.found_inf = at::isfinite(total).logical_not_().to(at::kFloat);
  if (max_norm > 0) out.grad_scale = total.add(kClipEpsilon).div_(max_norm).clamp_min_(1).to(at::kFloat);
  if (scale.defined()) out.grad_scale = max_norm > 0 ? out.grad_scale.mul(scale) : scale.clone();
  return out;
}

}  // namespace fsdp
