#include "fsdp/engine/recompute.h"

#include <ATen/core/custom_class.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "fsdp/engine/host_activations.h"
#include "fsdp/engine/kept_results.h"
#include "fsdp/engine/random_state.h"

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kCall = "call";

/// The states of the generators that work on some tensors draws from.
class RandomStates {
 public:
  explicit RandomStates(const std::vector<at::Tensor>& tensors) {
    add(at::kCPU);
    for (const at::Tensor& tensor : tensors)
      if (tensor.defined()) add(tensor.device());
  }
  void restore() const {
    for (const auto& [device, state] : states_) set_random_state(state, device);
  }

 private:
  void add(at::Device device) {
    if (!must_restore_random(device)) return;
    const bool known = std::any_of(states_.begin(), states_.end(), [&](const auto& s) { return s.first == device; });
    if (!known) states_.emplace_back(device, random_state(device));
  }
  std::vector<std::pair<at::Device, at::Tensor>> states_;
};

/// Puts back the random states of its construction.
struct KeepRandomStates {
  explicit KeepRandomStates(const std::vector<at::Tensor>& tensors) : states(tensors) {}
  ~KeepRandomStates() { states.restore(); }
  KeepRandomStates(const KeepRandomStates&) = delete;
  KeepRandomStates& operator=(const KeepRandomStates&) = delete;
  RandomStates states;
};

/// Data that backward needs to call forward again.
struct Call : torch::CustomClassHolder {
  Call(Part part, std::vector<at::Tensor> tensors, const RecomputeOptions& options)
      : forward(std::move(part)), inputs(tensors.size()), random(tensors), kept(options.keep), host(options.host) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].defined()) places.push_back(i);
  }

  /// `defined` are the defined inputs.
  std::vector<at::Tensor> operator()(at::TensorList defined) const {
    std::vector<at::Tensor> all(inputs);
    for (std::size_t i = 0; i < places.size(); ++i) all[places[i]] = defined[i];
    return forward(std::move(all));
  }

  Part forward;
  std::size_t inputs;
  std::vector<std::size_t> places;  // of the defined inputs
  RandomStates random;              // before the first call
  KeptResults kept;
  std::shared_ptr<HostActivations> host;              // null: what is kept stays on its device
  std::shared_ptr<HostActivations::Waiting> waiting;  // the defined inputs, then the kept results
  std::vector<bool> trains;                           // by defined input: whether it needs a gradient
};

struct Recompute : torch::autograd::Function<Recompute> {
  /// `inputs` are the defined inputs and, last, a tensor that needs a gradient, so that autograd records the call.
  static variable_list forward(AutogradContext* context, at::TensorList inputs, const c10::intrusive_ptr<Call>& call) {
    const at::TensorList own = inputs.slice(0, inputs.size() - 1);
    variable_list outputs;
    {
      const KeptResults::First first(call->kept);
      outputs = (*call)(own);
    }
    variable_list without_gradient;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      TORCH_CHECK(outputs[i].defined(), "recompute: output ", i, " is undefined; return defined tensors only");
      if (!outputs[i].is_floating_point()) without_gradient.push_back(outputs[i]);
    }
    context->mark_non_differentiable(without_gradient);
    context->set_materialize_grads(false);
    variable_list kept = own.vec();
    for (const at::Tensor& input : own) call->trains.push_back(input.requires_grad());
    for (at::Tensor& result : call->kept.take_tensors()) kept.push_back(std::move(result));
    if (call->host) {
      for (at::Tensor& tensor : kept) tensor = tensor.detach();  // what the graph holds must not hold the graph
      call->waiting = call->host->put(std::move(kept));
    } else {
      context->save_for_backward(std::move(kept));
    }
    context->saved_data[kCall] = at::IValue::make_capsule(call);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "recompute: backward with create_graph; a recomputed part has no second derivative, so call it without "
                "activation checkpointing");
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data[kCall].toCapsule());
    variable_list kept = call->host ? call->host->get(call->waiting) : context->get_saved_variables();
    const auto first_result = kept.begin() + static_cast<std::ptrdiff_t>(call->trains.size());
    variable_list inputs, results(std::make_move_iterator(first_result), std::make_move_iterator(kept.end()));
    for (std::size_t i = 0; i < call->trains.size(); ++i)
      inputs.push_back(kept[i].detach().requires_grad_(call->trains[i]));
    kept.clear();
    const variable_list outputs = run_again(*call, inputs, std::move(results));
    variable_list roots, of_roots;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(outputs[i]);
      of_roots.push_back(gradients[i]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, of_roots);
    variable_list of_inputs;
    for (const at::Tensor& input : inputs) of_inputs.push_back(input.grad());
    of_inputs.resize(inputs.size() + 2);  // for the tensor that needs a gradient, and for the call
    return of_inputs;
  }

  static variable_list run_again(const Call& call, const variable_list& inputs, variable_list results) {
    const KeepRandomStates keep(inputs);
    const KeptResults::Again again(call.kept, std::move(results));
    call.random.restore();
    const at::AutoGradMode with_gradient(true);
    return call(inputs);
  }
};

}  // namespace

std::vector<at::Tensor> recompute(std::vector<at::Tensor> inputs, const Part& forward, const torch::nn::Module& module,
                                  const RecomputeOptions& options) {
  const auto needs_gradient = [](const at::Tensor& t) { return t.defined() && t.requires_grad(); };
  const auto parameters = module.parameters();
  const bool recorded =
      at::GradMode::is_enabled() && (std::any_of(inputs.begin(), inputs.end(), needs_gradient) ||
                                     std::any_of(parameters.begin(), parameters.end(), needs_gradient));
  if (!recorded) return forward(std::move(inputs));
  const auto call = c10::make_intrusive<Call>(forward, inputs, options);
  std::vector<at::Tensor> list;
  for (at::Tensor& input : inputs)
    if (input.defined()) list.push_back(std::move(input));
  list.push_back(at::zeros({}, at::kFloat).requires_grad_());
  return Recompute::apply(at::TensorList(list), call);
}

}  // namespace fsdp
