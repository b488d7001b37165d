#pragma once
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/fsdp/error_of.h"
#include "tests/fsdp/random_model.h"
#include "tests/fsdp/thread_ranks.h"

// Random schedules of a sharded tree of modules beside a plain copy of it. A schedule is one optimizer step:
// micro-batches whose forwards skip, repeat, nest, drop, recompute and throw. The plain copy runs the same schedule on
// each rank's input. The mean of its gradients and an AdamW for each of its parameters are the truth.

constexpr int kStepsPerTree = 40, kStepsPerComparison = 5;
constexpr double kRate = 1e-2;
// Small gradients differ in their last bits, and AdamW divides by their size. A large epsilon keeps that difference
// small.
constexpr double kEpsilon = 1e-2;

inline fsdp::AdamWOptions adamw_options() {
  fsdp::AdamWOptions options;
  options.eps = kEpsilon;
  return options;
}

/// Plain autograd and PyTorch's fused AdamW on one rank's copy of the tree.
class Plain {
 public:
  Plain(std::uint64_t seed, fsdp::DeviceMesh& mesh) : tree(make_tree(seed)), mesh_(mesh) {
    for (const auto& item : tree->named_parameters())
      if (item.key().find("tied") == std::string::npos) states_[item.key()].parameter = item.value();
  }

  /// The mean gradients over ranks of the parameters that any rank's backward reached.
  std::map<std::string, at::Tensor> gradients() {
    std::vector<at::Tensor> parts;
    for (const auto& [name, state] : states_) {
      const at::Tensor& p = state.parameter;
      parts.push_back(p.grad().defined() ? p.grad().reshape({-1}) : at::zeros({p.numel()}));
    }
    at::Tensor sum = at::cat(parts);
    mesh_.shard().all_reduce(sum);
    std::map<std::string, at::Tensor> mean;
    std::int64_t begin = 0;
    for (const auto& [name, state] : states_) {
      const at::Tensor& p = state.parameter;
      if (p.grad().defined()) mean[name] = sum.narrow(0, begin, p.numel()).reshape(p.sizes()) / mesh_.world_size();
      begin += p.numel();
    }
    return mean;
  }

  void update(const std::map<std::string, at::Tensor>& gradients) {
    const at::NoGradGuard no_grad;
    const fsdp::AdamWOptions o = adamw_options();
    for (auto& [name, state] : states_) {
      const auto gradient = gradients.find(name);
      if (gradient == gradients.end()) continue;
      at::Tensor& p = state.parameter;
      if (!state.exp_avg.defined()) state.exp_avg = at::zeros_like(p), state.exp_avg_sq = at::zeros_like(p);
      at::_fused_adamw_({p}, {gradient->second}, {state.exp_avg}, {state.exp_avg_sq}, {},
                        {at::scalar_tensor(static_cast<double>(++state.steps))}, kRate, o.beta1, o.beta2,
                        p.dim() >= 2 ? o.weight_decay : 0.0, o.eps, false, false);
    }
  }

  /// How often gradients were made or added to since zero_grad().
  std::int64_t gradient_changes() const {
    std::int64_t changes = 0;
    for (const auto& [name, state] : states_)
      if (const at::Tensor& gradient = state.parameter.grad(); gradient.defined()) changes += 1 + gradient._version();
    return changes;
  }

  void zero_grad() {
    for (auto& [name, state] : states_) state.parameter.mutable_grad() = at::Tensor();
  }

  std::shared_ptr<Node> tree;

 private:
  struct State {
    at::Tensor parameter, exp_avg, exp_avg_sq;
    std::int64_t steps = 0;
  };
  fsdp::DeviceMesh& mesh_;
  std::map<std::string, State> states_;
};

/// Makes a unit of each child of `node` with a chance of 70 %, children before their parents.
inline void shard_children(const Node& node, fsdp::ShardedModel& sharded, Draw& draw) {
  for (const auto& child : node.nodes()) {
    shard_children(*child, sharded, draw);
    fsdp::ShardOptions options;
    options.reshard_after_forward = draw.percent(75);
    options.prefetch_depth = draw.below(3);
    options.runs_last = draw.percent(30);
    options.reduce_each_run = draw.percent(25);
    if (draw.percent(70)) child->wrap = wrapper(sharded.fully_shard(child, options));
  }
}

inline at::Tensor input_of(int rank, int step, int micro, bool needs_gradient) {
  return at::sin(at::arange(2 * Node::kSize).reshape({2, Node::kSize}) * (1.3 + rank) + step + 0.7 * micro)
      .requires_grad_(needs_gradient);
}

/// Forward and backward of one micro-batch. Returns the loss, or NaN after a planned failure.
inline double run_call(Node& tree, const Call& call, const at::Tensor& input, double scale) {
  try {
    const at::Tensor loss = tree.forward(input, call).pow(2).sum();
    if (loss.requires_grad()) (loss * scale).backward();
    return loss.item<double>();
  } catch (const PlannedFailure&) {
    return std::nan("");
  }
}

struct MicroBatch {
  Call call;
  bool sync = true;
  bool input_needs_gradient = false;
};

inline std::vector<MicroBatch> random_step(Draw& draw, const Node& tree) {
  std::vector<MicroBatch> micros(1 + draw.below(3));
  const bool sync_each = draw.percent(30);
  for (std::size_t i = 0; i < micros.size(); ++i) {
    micros[i].call = random_call(draw, tree);
    micros[i].call.dropped = micros[i].call.without_grad = false;
    micros[i].sync = sync_each || i + 1 == micros.size();
    micros[i].input_needs_gradient = draw.percent(50);
  }
  return micros;
}

inline void expect_close(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  EXPECT_LE((got - want).abs().max().item<double>(), 2e-5 * (1 + want.abs().max().item<double>())) << what;
}

/// A sharded tree beside its plain copy, taken through many steps.
class Pair {
 public:
  Pair(std::uint64_t seed, fsdp::DeviceMesh& mesh)
      : mesh_(mesh), draw_(seed), plain_(seed, mesh), tree_(make_tree(seed)), sharded_(tree_, mesh) {
    shard_children(*tree_, sharded_, draw_);
    fsdp::ShardOptions options;
    options.reshard_after_forward = draw_.percent(30);
    options.prefetch_depth = draw_.below(3);
    tree_->wrap = wrapper(sharded_.fully_shard(tree_, options));
    optimizer_.emplace(sharded_, adamw_options());
  }

  void step(int step) {
    if (draw_.percent(25)) toggle_some();
    const std::vector<MicroBatch> micros = random_step(draw_, *tree_);
    const bool abandon = draw_.percent(50);
    const bool whole = run(micros, step);
    if (whole) {
      compare_gradients();
      optimizer_->step(kRate);
    }
    if (!whole && abandon) sharded_.abandon_step();
    sharded_.zero_grad();
    plain_.zero_grad();
    if (step % kStepsPerComparison == 0) compare_weights();
    EXPECT_EQ(sharded_.memory().unreduced_bytes_now, 0);
    if ((whole && reaches_any_) || abandon) {
      EXPECT_EQ(sharded_.memory().gathered_bytes_now, 0);
    }
  }

 private:
  /// Freezes or unfreezes a few parameters of both trees.
  void toggle_some() {
    auto plain = plain_.tree->parameters(), sharded = tree_->parameters();
    for (int i = draw_.below(3); i >= 0; --i) {
      const auto chosen = static_cast<std::size_t>(draw_.below(static_cast<int>(plain.size())));
      const bool trainable = !plain[chosen].requires_grad();
      plain[chosen].requires_grad_(trainable);
      sharded[chosen].requires_grad_(trainable);
    }
  }

  /// True if the step is whole, which it is not after a planned failure, and where the last backward reduced nothing.
  bool run(const std::vector<MicroBatch>& micros, int step) {
    reaches_any_ = true;
    for (std::size_t i = 0; i < micros.size(); ++i) {
      const auto input = [&] {
        return input_of(mesh_.rank(), step, static_cast<int>(i), micros[i].input_needs_gradient);
      };
      const at::Tensor own = input(), reference = input();
      sharded_.set_requires_gradient_sync(micros[i].sync);
      const std::int64_t before = plain_.gradient_changes();
      const double want = run_call(*plain_.tree, micros[i].call, reference, 0.5);
      const double got = run_call(*tree_, micros[i].call, own, 0.5);
      reaches_any_ = plain_.gradient_changes() > before;
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << "the failure was lost";
        return false;
      }
      EXPECT_NEAR(got, want, 1e-5 * (1 + std::abs(want)));
      if (reference.grad().defined()) expect_close(own.grad(), reference.grad(), "gradient of the input");
    }
    // Where the last backward reaches no parameter, nobody may reduce what those before it left.
    const std::string error = error_of([&] { sharded_.complete_gradients("test"); });
    if (error == "no error") return true;
    EXPECT_FALSE(reaches_any_);
    EXPECT_THAT(error, ::testing::HasSubstr("has gradients that no backward has reduced"));
    return false;
  }

  /// Each rank compares the slices that it owns.
  void compare_gradients() {
    const auto want = plain_.gradients();
    sharded_.complete_gradients("test");
    for (const auto& unit : sharded_.units())
      for (const auto& segment : unit->segments()) compare_gradients(*segment, want);
    plain_.update(want);
  }

  void compare_gradients(const fsdp::Segment& segment, const std::map<std::string, at::Tensor>& want) {
    for (std::size_t i = 0; i < segment.layout().parameters().size(); ++i) {
      const fsdp::ParameterInfo& info = segment.layout().parameters()[i];
      const fsdp::Slice slice = segment.layout().own(info);
      const auto gradient = want.find(info.name);
      ASSERT_EQ(segment.used(i), gradient != want.end()) << info.name;
      if (gradient == want.end() || slice.length == 0) continue;
      ASSERT_TRUE(segment.gradient_shard().defined()) << info.name;
      expect_close(segment.gradient_shard().narrow(0, slice.shard_offset, slice.length),
                   gradient->second.reshape({-1}).narrow(0, slice.begin, slice.length), "gradient of " + info.name);
    }
  }

  /// Also copies the weights to the plain tree, so that rounding does not add up over the steps.
  void compare_weights() {
    const at::NoGradGuard no_grad;
    const auto state = sharded_.gather_full_state();
    for (auto& item : plain_.tree->named_parameters()) {
      expect_close(state.at(item.key()), item.value(), item.key());
      item.value().copy_(state.at(item.key()));
    }
  }

  fsdp::DeviceMesh& mesh_;
  bool reaches_any_ = true;  // the step's last backward, any parameter
  Draw draw_;
  Plain plain_;
  std::shared_ptr<Node> tree_;
  fsdp::ShardedModel sharded_;
  std::optional<fsdp::AdamW> optimizer_;
};

/// Makes all steps of a tree, until one fails.
inline void train_tree(std::uint64_t seed, fsdp::DeviceMesh& mesh) {
  SCOPED_TRACE("tree " + std::to_string(seed));
  Pair pair(seed, mesh);
  for (int step = 0; step < kStepsPerTree; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    pair.step(step);
    if (::testing::Test::HasFailure()) return;  // what follows says nothing
  }
}
