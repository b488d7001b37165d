// Goal: the chunked loss is the plain loss, with its gradients, in a bounded part of its memory.
// Method: PyTorch's own cross entropy over all logits is the judge; the allocator's reports count bytes.
#include "worker/models/head_loss.h"

#include <ATen/core/Reduction.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "fsdp/memory/storage.h"

namespace worker {
namespace {

struct Case {
  at::Tensor x, weight, targets;
};

Case case_of(std::int64_t positions, std::int64_t hidden, std::int64_t vocab, at::ScalarType dtype = at::kFloat) {
  at::manual_seed(1);
  Case out{at::randn({2, positions / 2, hidden}).to(dtype), (at::randn({vocab, hidden}) * 0.3).to(dtype),
           at::randint(vocab, {2, positions / 2})};
  out.targets[0][1] = data::order::kNoTarget;
  out.x.requires_grad_();
  out.weight.requires_grad_();
  return out;
}

at::Tensor plain(const Case& c) {
  return at::cross_entropy_loss(at::linear(c.x, c.weight).flatten(0, 1).to(at::kFloat), c.targets.flatten(), {},
                                at::Reduction::Sum, data::order::kNoTarget);
}

void expect_like_plain(at::ScalarType dtype, std::int64_t most_logits, double tolerance) {
  const auto a = case_of(14, 12, 37, dtype), b = case_of(14, 12, 37, dtype);
  const at::Tensor loss = linear_cross_entropy(a.x, a.weight, a.targets, {}, most_logits), wanted = plain(b);
  EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), tolerance * wanted.item<double>());
  (loss * 0.25).backward();
  (wanted * 0.25).backward();
  EXPECT_TRUE(at::allclose(a.x.grad(), b.x.grad(), tolerance, tolerance)) << most_logits;
  EXPECT_TRUE(at::allclose(a.weight.grad(), b.weight.grad(), tolerance, tolerance)) << most_logits;
}

TEST(HeadLoss, IsThePlainLossWithItsGradientsWhateverTheChunk) {
  for (const std::int64_t most : {1, 37, 5 * 37, 14 * 37, 1'000'000}) expect_like_plain(at::kFloat, most, 1e-5);
  expect_like_plain(at::kBFloat16, 5 * 37, 2e-2);
}

TEST(HeadLoss, TakesABiasWithItsGradient) {
  for (const std::int64_t most : {37, 5 * 37, 1'000'000}) {
    const auto a = case_of(14, 12, 37), b = case_of(14, 12, 37);
    const at::Tensor bias = at::randn({37}).requires_grad_(), judge = bias.detach().clone().requires_grad_();
    const at::Tensor wanted =
        at::cross_entropy_loss(at::linear(b.x, b.weight, judge).flatten(0, 1), b.targets.flatten(), {},
                               at::Reduction::Sum, data::order::kNoTarget);
    for (int pass = 0; pass < 2; ++pass) {  // the second one adds in place
      const at::Tensor loss = linear_cross_entropy(a.x, a.weight, a.targets, bias, most);
      EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-5 * wanted.item<double>());
      (loss * 0.25).backward();
    }
    (wanted * 0.5).backward();
    EXPECT_TRUE(at::allclose(bias.grad(), judge.grad(), 1e-5, 1e-5)) << most;
    EXPECT_TRUE(at::allclose(a.x.grad(), b.x.grad(), 1e-5, 1e-5)) << most;
    EXPECT_TRUE(at::allclose(a.weight.grad(), b.weight.grad(), 1e-5, 1e-5)) << most;
  }
}

TEST(HeadLoss, AddsTheHeadsGradientToTheOneThatIsThere) {
  const auto a = case_of(14, 12, 37), b = case_of(14, 12, 37);
  const at::Tensor laid = at::zeros_like(a.weight);
  a.weight.mutable_grad() = laid;
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor loss = linear_cross_entropy(a.x, a.weight, a.targets);
    const auto bytes = std::make_shared<fsdp::TensorBytes>();
    {
      const fsdp::CountTensorBytes counts(bytes);
      (loss * 0.25).backward();
    }
    EXPECT_LT(bytes->sum(), static_cast<std::int64_t>(laid.nbytes())) << "no temporary of the weight's size";
    (plain(b) * 0.25).backward();
    EXPECT_TRUE(a.weight.grad().is_same(laid));
    EXPECT_TRUE(at::allclose(laid, b.weight.grad(), 1e-5, 1e-5));
  }
}

TEST(HeadLoss, OneEqualGuessCostsTheLogarithmOfTheVocabulary) {
  const at::Tensor targets = at::zeros({2, 3}, at::kLong);
  const at::Tensor loss = linear_cross_entropy(at::zeros({2, 3, 4}), at::zeros({256, 4}), targets);
  EXPECT_NEAR(loss.item<double>(), 6 * std::log(256.0), 1e-4);
}

TEST(HeadLoss, AllTargetsIgnoredIsNothing) {
  auto c = case_of(4, 3, 5);
  c.targets.fill_(data::order::kNoTarget);
  const at::Tensor loss = linear_cross_entropy(c.x, c.weight, c.targets);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(c.weight.grad().abs().sum().item<double>(), 0);
}

TEST(HeadLoss, AFrozenHeadHasNoGradientAndFrozenInputsStillTrainTheHead) {
  auto head = case_of(6, 4, 9), body = case_of(6, 4, 9), both = case_of(6, 4, 9);
  head.x.requires_grad_(false);
  body.weight.requires_grad_(false);
  linear_cross_entropy(head.x, head.weight, head.targets).backward();
  linear_cross_entropy(body.x, body.weight, body.targets).backward();
  linear_cross_entropy(both.x, both.weight, both.targets).backward();
  EXPECT_TRUE(at::equal(head.weight.grad(), both.weight.grad()));
  EXPECT_TRUE(at::equal(body.x.grad(), both.x.grad()));
  EXPECT_FALSE(body.weight.grad().defined());
}

TEST(HeadLoss, HoldsOneChunkOfLogits) {
  constexpr std::int64_t kPositions = 512, kHidden = 8, kVocab = 4096, kAll = kPositions * kVocab * 4;
  const auto peak_of = [](const auto& work) {
    const auto peak = std::make_shared<fsdp::TensorBytes>();
    const fsdp::CountTensorBytes counts(peak);
    work();
    return peak->peak();
  };
  const auto a = case_of(kPositions, kHidden, kVocab), b = case_of(kPositions, kHidden, kVocab);
  const auto whole = peak_of([&] { plain(a).backward(); });
  const auto chunked = peak_of([&] { linear_cross_entropy(b.x, b.weight, b.targets, {}, 32 * kVocab).backward(); });
  EXPECT_GT(whole, 3 * kAll) << "the judge holds the logits, their logarithms and their gradients";
  EXPECT_LT(chunked, kAll / 2);
}

TEST(HeadLoss, TargetsOfAnotherShapeAreRefused) {
  EXPECT_THROW(linear_cross_entropy(at::zeros({2, 3, 4}), at::zeros({5, 4}), at::zeros({6}, at::kLong)), c10::Error);
}

}  // namespace
}  // namespace worker
