#include "fsdp/gradient_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace fsdp {

namespace {

constexpr double kClipEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The norms of this rank's gradients, fp64, one for each segment with gradients.
at::Tensor norms_of_segments(const ShardedModel& model, double order) {
  std::vector<at::Tensor> gradients;
  for (const auto& unit : model.units())
    for (const auto& segment : unit->segments())
      if (segment->gradient_shard().defined()) gradients.push_back(segment->gradient_shard());
  if (gradients.empty()) return {};
  return at::stack(at::_foreach_norm(gradients, order)).to(at::kDouble);
}

}  // namespace

GradientNorm gradient_norm(ShardedModel& model, double max_norm, NormType type, const at::Tensor& scale) {
  const Tracer::Scope span(model.mesh().tracer().get(), "gradient norm", "");
  model.complete_gradients("gradient_norm");
  const at::NoGradGuard no_grad;
  Communicator& ranks = model.mesh().shard();
  const double order = type == NormType::kInf ? kInfinity : type == NormType::kTwo ? 2 : 1;
  at::Tensor norms = norms_of_segments(model, order);
  if (norms.defined()) norms = norms.to(ranks.device());
  at::Tensor total = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(ranks.device()));
  if (norms.defined() && type == NormType::kInf) {
    // The maximum over ranks may lose a NaN.
    total = at::nan_to_num(norms, kInfinity, kInfinity).max().reshape({1});
  } else if (norms.defined()) {
    total = (type == NormType::kTwo ? norms.square() : norms).sum().reshape({1});
  }
  ranks.all_reduce(total, type == NormType::kInf ? Reduction::kMax : Reduction::kSum);
  if (type == NormType::kTwo) total.sqrt_();
  if (scale.defined()) total.div_(scale);
  GradientNorm out;
  out.norm = total;
  out.found_inf = at::isfinite(total).logical_not_().to(at::kFloat);
  if (max_norm > 0) out.grad_scale = total.add(kClipEpsilon).div_(max_norm).clamp_min_(1).to(at::kFloat);
  if (scale.defined()) out.grad_scale = max_norm > 0 ? out.grad_scale.mul(scale) : scale.clone();
  return out;
}

}  // namespace fsdp
