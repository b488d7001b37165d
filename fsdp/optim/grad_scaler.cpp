#include "fsdp/optim/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <string>

namespace fsdp {

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
