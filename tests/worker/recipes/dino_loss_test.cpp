// Goal: targets and losses of self-distillation are those of hand-made cases, at any split of the rows over ranks.
// Method: ranks are threads that meet in an all-reduce of the test. The formulas as a whole are compared with a second
// computation in Python by dinov2_peers_test.cpp.
#include "worker/recipes/dino_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

namespace worker {
namespace {

/// Reduces over the threads of a test, in the order of the ranks.
class Meeting {
 public:
  explicit Meeting(int ranks) : given_(static_cast<std::size_t>(ranks)), all_here_(ranks) {}

  ReduceOverRanks sum(int rank) {
    return
        [this, rank](at::Tensor& values) { reduce(rank, values, [](const auto& a, const auto& b) { return a + b; }); };
  }
  ReduceOverRanks max(int rank) {
    return [this, rank](at::Tensor& values) {
      reduce(rank, values, [](const auto& a, const auto& b) { return at::maximum(a, b); });
    };
  }

 private:
  void reduce(int rank, at::Tensor& values,
              const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& join) {
    given_[static_cast<std::size_t>(rank)] = values;
    all_here_.arrive_and_wait();
    at::Tensor out = given_[0];
    for (std::size_t i = 1; i < given_.size(); ++i) out = join(out, given_[i]);
    all_here_.arrive_and_wait();
    values = out.clone();
  }

  std::vector<at::Tensor> given_;
  std::barrier<> all_here_;
};

/// Tensors that ranks with these numbers of rows compute of their part, in the order of the ranks.
std::vector<at::Tensor> over_ranks(const at::Tensor& rows, const std::vector<std::int64_t>& counts,
                                   const std::function<at::Tensor(const at::Tensor&, Meeting&, int)>& compute) {
  Meeting meeting(static_cast<int>(counts.size()));
  std::vector<at::Tensor> out(counts.size());
  std::vector<std::thread> ranks;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    ranks.emplace_back(
        [&, i, part = rows.narrow(0, begin, counts[i])] { out[i] = compute(part, meeting, static_cast<int>(i)); });
    begin += counts[i];
  }
  for (auto& rank : ranks) rank.join();
  return out;
}

at::Tensor answers(std::int64_t rows, std::int64_t prototypes, double scale = 1) {
  at::manual_seed(8);
  return scale * at::randn({rows, prototypes});
}

TEST(CentredSoftmax, TakesTheCentreAwayAndSharpens) {
  const at::Tensor t = at::tensor({1.0f, 2.0f, 3.0f}).unsqueeze(0),
                   centre = at::tensor({1.0f, 1.0f, 3.0f}).unsqueeze(0);
  const double e = std::exp(1 / 0.5);
  EXPECT_TRUE(at::allclose(centred_softmax(t, centre, 0.5),
                           at::tensor({1 / (2 + e), e / (2 + e), 1 / (2 + e)}).to(at::kFloat)));
  const at::Tensor half = centred_softmax(t.to(at::kHalf), centre, 0.5);
  EXPECT_EQ(half.scalar_type(), at::kFloat);
  EXPECT_FALSE(centred_softmax(t.clone().requires_grad_(), centre, 0.5).requires_grad());
  EXPECT_THROW(centred_softmax(t, at::zeros({1, 2}), 0.5), c10::Error);
  EXPECT_THROW(centred_softmax(t, centre, 0), c10::Error);
}

TEST(Centre, IsTheMeanOfAllRowsOfAllRanks) {
  const at::Tensor t = answers(7, 4), before = at::full({1, 4}, 2.0);
  const at::Tensor want = 0.9 * before + 0.1 * t.mean(0, true);
  for (const std::vector<std::int64_t>& counts : {std::vector<std::int64_t>{7}, {3, 4}, {5, 0, 2}}) {
    for (const at::Tensor& got : over_ranks(t, counts, [&](const at::Tensor&part, Meeting&meeting, int rank) {
           return updated_centre(before, part, 0.9, meeting.sum(rank));
         })) {
      EXPECT_TRUE(at::allclose(got, want, 1e-6, 1e-7));
    }
  }
  EXPECT_TRUE(at::equal(updated_centre(before, t.narrow(0, 0, 0), 0.9, over_one_rank), before)) << "nothing is masked";
}

TEST(SinkhornKnopp, OneRoundOfAHandMadeCase) {
  // exp(t / T) = [[1, 3], [1, 1]]: prototypes have the sums 2 and 4.
  const at::Tensor t = at::tensor({0.0f, std::log(3.0f), 0.0f, 0.0f}).view({2, 2});
  const at::Tensor got = sinkhorn_knopp(t, 1, 1, over_one_rank, over_one_rank);
  // Divided by them: [[1/2, 3/4], [1/2, 1/4]], and then the rows.
  EXPECT_TRUE(at::allclose(got, at::tensor({0.4f, 0.6f, 2.0f / 3, 1.0f / 3}).view({2, 2})));
}

TEST(SinkhornKnopp, GivesAllPrototypesEquallyMuchAndIsEqualAtAnyNumberOfRanks) {
  const at::Tensor t = answers(12, 4, 0.3);
  const at::Tensor many = sinkhorn_knopp(t, 0.1, 200, over_one_rank, over_one_rank);
  EXPECT_TRUE(at::allclose(many.sum(0), at::full({4}, 3.0), 1e-3, 1e-3));
  const at::Tensor alone = sinkhorn_knopp(t, 0.1, 3, over_one_rank, over_one_rank);
  EXPECT_TRUE(at::allclose(alone.sum(1), at::ones({12})));
  for (const std::vector<std::int64_t>& counts : {std::vector<std::int64_t>{6, 6}, {5, 0, 7}, {1, 2, 3, 6}}) {
    const auto parts = over_ranks(t, counts, [](const at::Tensor& part, Meeting& meeting, int rank) {
      return sinkhorn_knopp(part, 0.1, 3, meeting.sum(rank), meeting.max(rank));
    });
    EXPECT_TRUE(at::allclose(at::cat(parts), alone, 1e-5, 1e-6)) << counts.size() << " ranks";
  }
}

TEST(SinkhornKnopp, LargeAnswersNeitherOverflowNorDivideZeroByZero) {
  const at::Tensor t = answers(6, 5);
  const at::Tensor want = sinkhorn_knopp(t, 0.05, 3, over_one_rank, over_one_rank);
  EXPECT_TRUE(at::allclose(sinkhorn_knopp(t + 1000, 0.05, 3, over_one_rank, over_one_rank), want, 1e-3, 1e-4));
  at::Tensor far = t.clone();
  far.select(1, 2).fill_(-1e4);  // exp() of it is 0
  const at::Tensor got = sinkhorn_knopp(far, 0.05, 3, over_one_rank, over_one_rank);
  EXPECT_TRUE(got.isfinite().all().item<bool>());
  EXPECT_EQ(got.select(1, 2).abs().max().item<double>(), 0);
}

TEST(DinoLoss, OfOneImageByHand) {
  // Two prototypes, temperature 1. Answers of 0 and log 3 are shares of 1/4 and 3/4.
  const float l = std::log(3.0f);
  const at::Tensor global = at::tensor({0.0f, l, l, 0.0f}).view({2, 2}), local = at::zeros({1, 2});
  const at::Tensor targets = at::tensor({1.0f, 0.0f, 0.5f, 0.5f}).view({2, 2});
  // The first crop learns the second's target: -(log 1/4 + log 3/4) / 2. The second learns the first's: -log 3/4.
  const double of_global = -(std::log(0.25) + std::log(0.75)) / 2 - std::log(0.75);
  EXPECT_NEAR(dino_loss(global, {}, targets, 1).item<double>(), of_global / 2, 1e-6);
  // A local crop that knows nothing: log 2 for each of the targets.
  EXPECT_NEAR(dino_loss(global, local, targets, 1).item<double>(), (of_global + 2 * std::log(2.0)) / 4, 1e-6);
  EXPECT_THROW(dino_loss(global, at::zeros({1, 2}), at::zeros({2, 3}), 1), c10::Error);
  EXPECT_THROW(dino_loss(at::zeros({4, 2}), at::zeros({3, 2}), at::zeros({4, 2}), 1), c10::Error);
}

TEST(DinoLoss, IsOfTheLocalCropsOfTheSameImage) {
  const at::Tensor global = answers(4, 3), targets = at::softmax(answers(4, 3, 3), -1), local = answers(6, 3);
  const auto cross = [&](const at::Tensor& s, const at::Tensor& t) {
    return -(t * at::log_softmax(s / 0.1, -1)).sum().item<double>();
  };
  double sum = 0;
  for (std::int64_t image = 0; image < 2; ++image) {
    for (std::int64_t view = 0; view < 2; ++view) {
      sum += cross(global[2 * view + image], targets[2 * (1 - view) + image]) / 2;
      for (std::int64_t crop = 0; crop < 3; ++crop)
        sum += cross(local[2 * crop + image], targets[2 * view + image]) / 2;
    }
  }
  EXPECT_NEAR(dino_loss(global, local, targets, 0.1).item<double>(), sum / 8, 1e-4);
}

TEST(IbotLoss, EveryCropCountsAlike) {
  const at::Tensor student = at::zeros({3, 4}), targets = at::full({3, 4}, 0.25);
  // One crop of four has two masked patches, and one has one.
  const at::Tensor weights = at::tensor({0.5f, 0.5f, 1.0f});
  EXPECT_NEAR(ibot_loss(student, targets, weights, 4, 0.1).item<double>(), 2 * std::log(4.0) / 4, 1e-6);
  const at::Tensor none = at::zeros({0, 4}).requires_grad_();
  const at::Tensor loss = ibot_loss(none, at::zeros({0, 4}), at::zeros({0}), 4, 0.1);
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_NO_THROW(loss.backward());
  EXPECT_THROW(ibot_loss(student, targets, at::ones({2}), 4, 0.1), c10::Error);
}

TEST(KoLeo, IsMinusTheLogarithmOfTheDistanceToTheNearest) {
  // Directions at 0, 90 and 180 degrees: the nearest is sqrt(2) away. In the second crops two are opposite each other.
  const at::Tensor first = at::tensor({1.0f, 0.0f, 0.0f, 5.0f, -2.0f, 0.0f}).view({3, 2});
  const at::Tensor second = at::tensor({1.0f, 0.0f, 1.0f, 0.0f, -1.0f, 0.0f}).view({3, 2});
  const at::Tensor loss = koleo_loss(at::cat({first, second}));
  const double equal = -std::log(std::sqrt(2.0) * 1e-8 + 1e-8);
  EXPECT_NEAR(loss.item<double>(), -std::log(std::sqrt(2.0)) + (2 * equal - std::log(2.0)) / 3, 1e-4);
  const at::Tensor same = at::ones({4, 3}).requires_grad_();
  koleo_loss(same).backward();
  EXPECT_TRUE(same.grad().isfinite().all().item<bool>()) << "equal rows have a finite gradient";
}

TEST(KoLeo, OfOneImageIsZero) {
  const at::Tensor one = answers(2, 3).requires_grad_();
  const at::Tensor loss = koleo_loss(one);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(one.grad().abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace worker
