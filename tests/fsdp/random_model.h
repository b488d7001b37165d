#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/fsdp/small_model.h"

/// Draws that are equal on every machine and rank, unlike those of the standard library's distributions.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
  bool percent(int chance) { return below(100) < chance; }

 private:
  std::mt19937_64 engine_;
};

/// Thrown by a forward or a backward that is planned to fail.
struct PlannedFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One call of a node, with the calls of its children inside.
struct Call {
  int child = 0;
  bool uses_weight = true;
  bool uses_matrix = false;
  bool recompute = false;         // inside the node's unit
  bool recompute_around = false;  // the unit's run() is called again in backward
  bool without_grad = false;
  bool dropped = false;  // the result is not used
  bool throws_forward = false;
  bool throws_backward = false;
  std::vector<Call> inner;

  bool fails() const {
    if (throws_forward || (throws_backward && !dropped && !without_grad)) return true;
    return std::any_of(inner.begin(), inner.end(), [](const Call& call) { return call.fails(); });
  }
};

/// Keeps no activations: backward computes forward again, in a backward of its own.
struct Recompute : torch::autograd::Function<Recompute> {
  using Forward = std::function<at::Tensor(at::Tensor)>;
  struct Holder : torch::CustomClassHolder {
    explicit Holder(Forward f) : forward(std::move(f)) {}
    Forward forward;
  };

  /// `recorded` needs a gradient. Without it autograd would not record a call whose input needs none.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& recorded,
                            const c10::intrusive_ptr<Holder>& holder) {
    (void)recorded;
    context->save_for_backward({x});
    context->saved_data["forward"] = at::IValue::make_capsule(holder);
    context->saved_data["needs_gradient"] = x.requires_grad();
    return holder->forward(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["forward"].toCapsule());
    const bool needs_gradient = context->saved_data["needs_gradient"].toBool();
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(needs_gradient);
    const at::AutoGradMode grad(true);
    const at::Tensor y = holder->forward(x);
    if (y.requires_grad()) y.backward(gradients[0]);
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

inline at::Tensor recompute(const at::Tensor& x, const Recompute::Forward& forward) {
  if (!at::GradMode::is_enabled()) return forward(x);
  return Recompute::apply(x, at::zeros({1}).requires_grad_(), c10::make_intrusive<Recompute::Holder>(forward));
}

/// A node of a random tree of modules. It has a weight with two names, and parameters that are always used, sometimes
/// used (matrix) and never used.
struct Node : torch::nn::Module {
  static constexpr std::int64_t kSize = 5;

  Node(Draw& draw, int levels) {
    weight = register_parameter("weight", at::randn({kSize, kSize}) * 0.4);
    tied = register_parameter("tied", weight);
    bias = register_parameter("bias", at::randn({kSize}) * 0.1, !draw.percent(20));
    gain = register_parameter("gain", at::randn({}) * 0.1 + 1);
    matrix = register_parameter("matrix", at::randn({kSize, kSize}) * 0.2);
    register_parameter("unused", at::randn({3, 2}));
    for (int i = levels > 0 ? 1 + draw.below(2) : 0; i > 0; --i)
      children_.push_back(register_module("child" + std::to_string(i), std::make_shared<Node>(draw, levels - 1)));
  }

  at::Tensor forward(const at::Tensor& x, const Call& call) {
    const auto body = [this, call](at::Tensor in) {
      return call.recompute ? ::recompute(in, [this, call](at::Tensor again) { return compute(again, call); })
                            : compute(in, call);
    };
    const auto run = [this, body](at::Tensor in) { return wrap ? wrap(in, body) : body(in); };
    return call.recompute_around ? ::recompute(x, run) : run(x);
  }

  at::Tensor compute(const at::Tensor& x, const Call& call) {
    at::Tensor y = x * gain + bias;
    if (call.uses_weight) y = at::tanh(at::matmul(y, weight.t())) + at::matmul(x, tied) * 0.1;
    if (call.uses_matrix) y = y + at::matmul(y, matrix);
    for (const Call& inner : call.inner) {
      const at::AutoGradMode grad(at::GradMode::is_enabled() && !inner.without_grad);
      const at::Tensor out = children_[inner.child]->forward(y, inner);
      if (!inner.dropped && !inner.without_grad) y = (y + out) * 0.7;
    }
    if (call.throws_forward) throw PlannedFailure("planned failure of a forward");
    if (call.throws_backward && y.requires_grad())
      y.register_hook([](const at::Tensor&) { throw PlannedFailure("planned failure of a backward"); });
    return y;
  }

  const std::vector<std::shared_ptr<Node>>& nodes() const { return children_; }

  at::Tensor weight, tied, bias, gain, matrix;
  Wrap wrap;

 private:
  std::vector<std::shared_ptr<Node>> children_;
};

/// Makes the same tree on every call with the same seed. Threads share the generator, so they take turns.
inline std::shared_ptr<Node> make_tree(std::uint64_t seed) {
  static std::mutex generator;
  const std::lock_guard<std::mutex> lock(generator);
  at::manual_seed(seed);
  Draw draw(seed);
  return std::make_shared<Node>(draw, 2);
}

/// A random call of `node` with children skipped, repeated, nested and dropped.
inline Call random_call(Draw& draw, const Node& node, int child = 0) {
  Call call;
  call.child = child;
  call.uses_weight = draw.percent(80);
  call.uses_matrix = draw.percent(30);
  call.without_grad = draw.percent(4);
  call.dropped = draw.percent(6);
  for (std::size_t i = 0; i < node.nodes().size() * 2; ++i) {
    if (draw.percent(40)) continue;
    const int next = draw.percent(70) ? static_cast<int>(i % node.nodes().size())
                                      : draw.below(static_cast<int>(node.nodes().size()));
    call.inner.push_back(random_call(draw, *node.nodes()[next], next));
  }
  call.recompute = draw.percent(20);
  call.recompute_around = draw.percent(10);
  call.throws_forward = draw.percent(1);
  call.throws_backward = draw.percent(1);
  return call;
}
