#include "fsdp/optim/grad_scaler.h"

#include <cmath>
#include <string>

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

GradScaler::GradScaler(at::Device device, const GradScalerOptions& options)
    : options_(options),
      scale_(at::full({1}, options.init_scale, at::TensorOptions().dtype(at::kFloat).device(device))),
      growth_tracker_(at::zeros({1}, at::TensorOptions().dtype(at::kInt).device(device))) {
  const auto check = [](bool fits, const char* name, double value, const char* wanted) {
    TORCH_CHECK(fits && std::isfinite(value), "GradScaler: ", name, " ", value, ": want ", wanted);
  };
  check(options.init_scale > 0, "init_scale", options.init_scale, "a number above 0");
  check(options.growth_factor > 1, "growth_factor", options.growth_factor, "a number above 1");
  check(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
        "a number between 0 and 1");
  check(options.min_scale >= 0 && options.min_scale <= options.init_scale, "min_scale", options.min_scale,
        "0 or more, and at most init_scale");
  const std::int64_t interval = options.growth_interval;
  TORCH_CHECK(interval > 0 && interval <= std::numeric_limits<std::int32_t>::max(), "GradScaler: growth_interval ",
              interval, ": want 1 or more, and at most 2^31 - 1");
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  // A copy of its own, because update() changes the scale in place and backward may come later.
  return (loss * scale_.clone().reshape({})).to(loss.scalar_type());
}

GradientNorm GradScaler::gradient_norm(ShardedModel& model, double max_norm, double order) const {
  return fsdp::gradient_norm(model, max_norm, order, scale_);
}

void GradScaler::update(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  if (options_.min_scale > 0) scale_.clamp_min_(options_.min_scale);
}

Json GradScaler::state() const {
  Json out;
  out["scale"] = scale_.item<double>();
  out["growth_tracker"] = static_cast<std::int64_t>(growth_tracker_.item<std::int32_t>());
  return out;
}

void GradScaler::load(const Json& state) {
  const double scale = state.at("scale").as_double();
  const std::int64_t tracker = state.at("growth_tracker").as_int();
  if (!(scale >= 0 && std::isfinite(scale))) throw JsonError("scale is " + std::to_string(scale));
  if (tracker < 0 || tracker > std::numeric_limits<std::int32_t>::max())
    throw JsonError("growth_tracker is " + std::to_string(tracker));
  const at::NoGradGuard no_grad;
  scale_.fill_(scale);
  growth_tracker_.fill_(tracker);
}

}  // namespace fsdp
