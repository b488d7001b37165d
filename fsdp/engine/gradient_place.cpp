#include "fsdp/engine/gradient_place.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace fsdp {
namespace {

/// Runs after autograd has set or changed a parameter's gradient.
class BringGradient : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit BringGradient(std::shared_ptr<GradientPlace> place) : place_(std::move(place)) {}

  const std::shared_ptr<GradientPlace>& place() const { return place_; }

  void operator()(const at::Tensor& parameter) override {
    if (!place_->is_fresh) return;
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined() || gradient.is_same(place_->view) || gradient.sizes() != place_->view.sizes()) return;
    const at::NoGradGuard no_grad;
    if (gradient.layout() == at::kStrided) {
      place_->view.copy_(gradient);
    } else {
      place_->view.zero_().add_(gradient);
    }
    gradient = place_->view;
    place_->is_filled = true;
  }

 private:
  std::shared_ptr<GradientPlace> place_;
};

bool has_hook(const at::Tensor& parameter) {
  return torch::autograd::impl::get_autograd_meta(parameter) != nullptr &&
         torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr;
}

/// Null: there is none, or it is somebody else's.
const BringGradient* hook_of(const at::Tensor& parameter) {
  if (!has_hook(parameter)) return nullptr;
  return dynamic_cast<const BringGradient*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
}

}  // namespace

bool bring_gradients(const at::Tensor& parameter, std::shared_ptr<GradientPlace> place) {
  if (has_hook(parameter) && hook_of(parameter) == nullptr) return false;
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<BringGradient>(std::move(place)));
  return true;
}

std::optional<at::Tensor> place_of_gradient(const at::Tensor& parameter, bool any_dtype) {
  const BringGradient* hook = hook_of(parameter);
  if (hook == nullptr) return std::nullopt;
  GradientPlace& place = *hook->place();
  if (!place.is_fresh || place.is_filled) return at::Tensor();
  if (!any_dtype && place.view.scalar_type() != parameter.scalar_type()) return at::Tensor();
  place.is_filled = true;
  return place.view;
}

}  // namespace fsdp
