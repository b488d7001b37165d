// Goal: gradients that are added in place are those of autograd, and every other use of autograd works as ever.
// Method: LibTorch's own functions beside these.
#include "worker/models/ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "fsdp/memory/storage.h"
#include "worker/models/head_loss.h"

namespace worker {
namespace {

/// A function of (input, weight).
using Op = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

struct OpCase {
  Op ours, theirs;
  at::Tensor input;
};

at::Tensor fresh_weight() {
  return at::arange(15, at::kFloat).view({5, 3}).div_(7).sub_(1).requires_grad_();
}

/// linear() on [2, 4, 3], and embedding() with ids that repeat.
std::vector<OpCase> op_cases() {
  const Op our_rows = [](const at::Tensor& ids, const at::Tensor& weight) { return worker::embedding(weight, ids); };
  const Op their_rows = [](const at::Tensor& ids, const at::Tensor& weight) { return at::embedding(weight, ids); };
  const Op ours = [](const at::Tensor& x, const at::Tensor& weight) { return worker::linear(x, weight); };
  const Op theirs = [](const at::Tensor& x, const at::Tensor& weight) { return at::linear(x, weight); };
  return {{ours, theirs, at::arange(24, at::kFloat).view({2, 4, 3}).sin_()},
          {our_rows, their_rows, at::tensor({1, 4, 1, 0}, at::kLong).view({2, 2})}};
}

at::Tensor loss_through(const Op& op, const at::Tensor& input, const at::Tensor& weight) {
  return op(input, weight).pow(3).sum();
}

void expect_near(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_TRUE(at::allclose(got, want, 1e-6, 1e-6)) << got << want;
}

TEST(GradientsInPlace, AreTheSumsOfAutograd) {
  for (const auto& [ours, theirs, input] : op_cases()) {
    at::Tensor mine = fresh_weight(), reference = fresh_weight();
    at::Tensor laid = at::zeros_like(mine);
    mine.mutable_grad() = laid;
    for (int pass = 0; pass < 2; ++pass) {
      const auto version = laid._version();
      loss_through(ours, input, mine).backward();
      loss_through(theirs, input, reference).backward();
      EXPECT_TRUE(mine.grad().is_same(laid));
      EXPECT_EQ(laid._version(), version + 1) << "one addition";
      expect_near(laid, reference.grad());
    }
  }
}

TEST(GradientsInPlace, NeedNoMemoryOfTheWeightsSize) {
  const auto bytes_of_backward = [](const Op& op, const at::Tensor& input) {
    at::Tensor weight = at::randn({512, 512}).requires_grad_();
    weight.mutable_grad() = at::zeros_like(weight);
    const at::Tensor loss = op(input, weight).sum();
    const auto bytes = std::make_shared<fsdp::TensorBytes>();
    const fsdp::CountTensorBytes counts(bytes);
    loss.backward();
    return bytes->sum();
  };
  constexpr std::int64_t kWeight = 512 * 512 * 4;
  const at::Tensor x = at::randn({3, 512}), ids = at::tensor({1, 4, 1}, at::kLong);
  EXPECT_LT(bytes_of_backward(op_cases()[0].ours, x), kWeight);
  EXPECT_LT(bytes_of_backward(op_cases()[1].ours, ids), kWeight);
  EXPECT_GE(bytes_of_backward(op_cases()[0].theirs, x), kWeight) << "so the bytes are counted";
  EXPECT_GE(bytes_of_backward(op_cases()[1].theirs, ids), kWeight);
}

TEST(GradientsInPlace, ThatAreNotThereAreAutogradsOwn) {
  for (const auto& [ours, theirs, input] : op_cases()) {
    at::Tensor mine = fresh_weight(), reference = fresh_weight();
    loss_through(ours, input, mine).backward();
    loss_through(theirs, input, reference).backward();
    EXPECT_TRUE(at::equal(mine.grad(), reference.grad())) << "there was no gradient to add to";
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(gradient_target(mine).memory.defined()) << "outside of a backward";
  }
}

TEST(GradientsInPlace, AreLeftAloneByGradAndCreateGraph) {
  for (const auto& [ours, theirs, input] : op_cases()) {
    at::Tensor mine = fresh_weight(), reference = fresh_weight();
    mine.mutable_grad() = at::ones_like(mine);
    const auto second = [&, in = input](const Op& op, at::Tensor& weight) {
      const at::Tensor first = torch::autograd::grad({loss_through(op, in, weight)}, {weight}, {}, true, true)[0];
      return std::pair(first.detach(), torch::autograd::grad({first.pow(2).sum()}, {weight})[0]);
    };
    const auto got = second(ours, mine), want = second(theirs, reference);
    expect_near(got.first, want.first);
    expect_near(got.second, want.second);
    EXPECT_TRUE(at::equal(mine.grad(), at::ones_like(mine)));
    const at::Tensor plain = torch::autograd::grad({loss_through(ours, input, mine)}, {mine})[0];
    expect_near(plain, want.first);
    EXPECT_TRUE(at::equal(mine.grad(), at::ones_like(mine)));
  }
}

TEST(GradientsInPlace, ReachHooks) {
  for (const auto& [ours, theirs, input] : op_cases()) {
    at::Tensor mine = fresh_weight(), reference = fresh_weight();
    mine.mutable_grad() = at::zeros_like(mine);
    mine.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    loss_through(ours, input, mine).backward();
    loss_through(theirs, input, reference).backward();
    expect_near(mine.grad(), reference.grad() * 2);
  }
}

/// Stands for an engine that has a place for one gradient, full of NaN.
class OnePlace : public ::testing::Test {
 protected:
  struct Hook : torch::autograd::PostAccumulateGradHook {
    void operator()(const at::Tensor&) override {}
  };

  static std::optional<at::Tensor> place_of(const at::Tensor& parameter, bool /*any_dtype*/) {
    if (!parameter.is_same(owner_)) return std::nullopt;
    return std::exchange(place_, at::Tensor());
  }

  /// The engine's hook is on `weight`, and its place is free.
  static void lay(const at::Tensor& weight, at::ScalarType dtype = at::kFloat) {
    torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<Hook>());
    owner_ = weight;
    place_ = at::full_like(weight, std::numeric_limits<double>::quiet_NaN(), weight.options().dtype(dtype));
    use_gradient_places(&place_of);
  }

  void TearDown() override {
    use_gradient_places(nullptr);
    owner_ = place_ = at::Tensor();
  }

  static inline at::Tensor owner_, place_;
};

TEST_F(OnePlace, IsWhereAFirstGradientIsWrittenAndALaterOneAdded) {
  for (const auto& [ours, theirs, input] : op_cases()) {
    const at::Tensor mine = fresh_weight(), reference = fresh_weight();
    lay(mine);
    const at::Tensor place = place_;
    for (int pass = 0; pass < 2; ++pass) {
      loss_through(ours, input, mine).backward();
      loss_through(theirs, input, reference).backward();
      EXPECT_TRUE(mine.grad().is_same(place)) << "pass " << pass;
      expect_near(place, reference.grad());
    }
  }
}

TEST_F(OnePlace, TakesTheHeadsGradientToo) {
  const at::Tensor x = at::arange(12, at::kFloat).view({4, 3}).sin_(), targets = at::tensor({1, 0, 4, 2}, at::kLong);
  const at::Tensor mine = fresh_weight(), reference = fresh_weight();
  linear_cross_entropy(x, reference, targets).mul(3).backward();
  lay(mine);
  const at::Tensor place = place_;
  linear_cross_entropy(x, mine, targets).mul(3).backward();
  EXPECT_TRUE(mine.grad().is_same(place));
  expect_near(place, reference.grad());
}

TEST_F(OnePlace, IsNotTakenInAnotherDtypeOrBySomebodyElsesHook) {
  const auto [ours, theirs, input] = op_cases()[0];
  const at::Tensor mine = fresh_weight(), other = fresh_weight(), reference = fresh_weight();
  loss_through(theirs, input, reference).backward();
  lay(mine, at::kDouble);
  loss_through(ours, input, mine).backward();
  expect_near(mine.grad(), reference.grad());
  lay(mine);
  torch::autograd::impl::set_post_acc_grad_hooks(other, std::make_unique<Hook>());
  loss_through(ours, input, other).backward();
  expect_near(other.grad(), reference.grad());
  EXPECT_TRUE(place_.defined()) << "the place is not for this weight";
}

/// A bias [4] of linear() on [2, 3, 5], as a function of the bias alone.
at::Tensor loss_of_bias(bool ours, const at::Tensor& bias) {
  const at::Tensor x = at::arange(30, at::kFloat).view({2, 3, 5}).sin_(), weight = at::ones({4, 5});
  return (ours ? worker::linear(x, weight, bias) : at::linear(x, weight, bias)).pow(3).sum();
}

TEST(GradientsInPlace, OfABiasAreSumsOverItsRows) {
  const at::Tensor mine = at::ones({4}).requires_grad_(), reference = at::ones({4}).requires_grad_();
  const at::Tensor laid = at::zeros({4});
  loss_of_bias(true, mine).backward();
  loss_of_bias(false, reference).backward();
  expect_near(mine.grad(), reference.grad());
  mine.mutable_grad() = laid;
  for (int pass = 0; pass < 2; ++pass) {
    loss_of_bias(true, mine).backward();
    EXPECT_TRUE(mine.grad().is_same(laid));
    expect_near(laid, reference.grad() * (pass + 1));
  }
}

TEST_F(OnePlace, TakesTheGradientOfABiasToo) {
  const at::Tensor mine = at::ones({4}).requires_grad_(), reference = at::ones({4}).requires_grad_();
  loss_of_bias(false, reference).backward();
  lay(mine);
  const at::Tensor place = place_;
  for (int pass = 0; pass < 2; ++pass) {
    loss_of_bias(true, mine).backward();
    EXPECT_TRUE(mine.grad().is_same(place)) << "pass " << pass;
    expect_near(place, reference.grad() * (pass + 1));
  }
}

TEST(GradientsInPlace, OfFrozenWeightsAreNone) {
  at::Tensor weight = fresh_weight().detach(), x = at::randn({2, 3}).requires_grad_();
  worker::linear(x, weight).sum().backward();
  EXPECT_FALSE(weight.grad().defined());
  expect_near(x.grad(), weight.sum(0).expand({2, 3}));
  EXPECT_FALSE(worker::embedding(weight, at::tensor({1}, at::kLong)).requires_grad());
}

}  // namespace
}  // namespace worker
