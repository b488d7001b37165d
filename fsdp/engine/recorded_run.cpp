#include "fsdp/engine/recorded_run.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kRun = "run";

/// Identity on a run's inputs. Its backward ends the run.
struct LeaveRun : torch::autograd::Function<LeaveRun> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<RecordedRun>& run) {
    context->set_materialize_grads(false);
    context->saved_data[kRun] = at::IValue::make_capsule(run);
    return inputs.vec();
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto run = c10::static_intrusive_pointer_cast<RecordedRun>(context->saved_data[kRun].toCapsule());
    for (const auto& second : run->second_order)
      for (const at::Tensor& gradient : gradients) RecordedRun::hook_output(second, gradient);
    run->second_order.clear();
    run->leave();
    gradients.emplace_back();  // for the run
    return gradients;
  }
};

/// Records the backward of `run` that begins with `gradient`: see [Note: second order].
at::Tensor record_backward(RecordedRun& run, const std::shared_ptr<Unit>& unit, const at::Tensor& gradient) {
  auto second = c10::make_intrusive<RecordedRun>(unit, run.parameter_version);
  std::vector<at::Tensor> linked{gradient};
  RecordedRun::link_inputs(second, linked);
  run.second_order.push_back(std::move(second));
  return linked.front();
}

}  // namespace

RecordedRun::RecordedRun(const std::shared_ptr<Unit>& of, std::int64_t version) : unit(of), parameter_version(version) {
  of->recorded_.push_back(this);
}

RecordedRun::~RecordedRun() {
  const auto owner = unit.lock();
  if (owner == nullptr) return;
  if (awaited) --owner->awaited_;
  auto& runs = owner->recorded_;
  runs.erase(std::find(runs.begin(), runs.end(), this));
}

void RecordedRun::link_inputs(const c10::intrusive_ptr<RecordedRun>& self, std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> linked;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    linked.push_back(inputs[i]);
    places.push_back(i);
  }
  if (linked.empty()) return;
  linked = LeaveRun::apply(at::TensorList(linked), self);
  self->last_node = linked.front().grad_fn().get();
  for (std::size_t i = 0; i < places.size(); ++i) inputs[places[i]] = std::move(linked[i]);
}

bool RecordedRun::hook_output(const c10::intrusive_ptr<RecordedRun>& self, const at::Tensor& output) {
  // A leaf is no result of the run. A hook would stay on it for ever.
  if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad() || output.is_leaf()) return false;
  self->output_nodes.push_back(output.grad_fn().get());
  output.register_hook([self](const at::Tensor& gradient) {
    const auto owner = self->unit.lock();
    if (owner == nullptr) return at::Tensor();
    owner->enter_run(*self);
    return at::GradMode::is_enabled() && gradient.defined() ? record_backward(*self, owner, gradient) : at::Tensor();
  });
  return true;
}

void RecordedRun::leave() {
  if (const auto owner = unit.lock()) owner->leave_run(*this);
}

bool RecordedRun::is_in(const std::unordered_set<torch::autograd::Node*>& nodes) const {
  if (last_node != nullptr) return nodes.count(last_node) > 0;
  return std::any_of(output_nodes.begin(), output_nodes.end(), [&](auto* node) { return nodes.count(node) > 0; });
}

}  // namespace fsdp
