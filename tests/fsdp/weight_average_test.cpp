// Goal: the average of the weights is the corrected moving average, on any number of ranks, and takes the weights'
// place. Method: weights gathered after each step are averaged by a formula in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::HasSubstr;

constexpr double kDecay = 0.7;

using Weights = std::map<std::string, at::Tensor>;

/// Two sums of each parameter, in double: decayed weights and decayed ones.
class Judge {
 public:
  void add(const Weights& weights) {
    for (const auto& [name, value] : weights) {
      auto& sum = sums_[name];
      sum = sum.defined() ? sum * kDecay + value.to(at::kDouble) : value.to(at::kDouble).clone();
    }
    total_ = total_ * kDecay + 1;
  }
  at::Tensor average(const std::string& name) const { return sums_.at(name) / total_; }

 private:
  std::map<std::string, at::Tensor> sums_;
  double total_ = 0;
};

void expect_equal(const Weights& got, const Weights& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) EXPECT_TRUE(at::equal(got.at(name), value)) << name;
}

fsdp::AdamWOptions with_moments(fsdp::Moments moments) {
  fsdp::AdamWOptions options;
  options.moments = moments;
  return options;
}

TEST(WeightAverage, IsTheCorrectedMovingAverage) {
  for (const int world_size : kWorldSizes) {
    run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      for (const MakeOptimizer& make : {maker<fsdp::AdamW>(fsdp::AdamWOptions()), maker<fsdp::Sgd>(fsdp::SgdOptions()),
                                        maker<fsdp::AdamW>(with_moments(fsdp::Moments::kBf16)),
                                        maker<fsdp::AdamW>(with_moments(fsdp::Moments::kInt8))}) {
        fsdp::ShardOptions options;
        options.alignment = fsdp::kQuantisedBlock;
        Trainer trainer(mesh, options, 7, make);
        const Weights first = trainer.sharded.gather_full_state();
        trainer.optimizer->keep_average(kDecay);
        Judge judge;
        for (int step = 0; step < 5; ++step) {
          trainer.step(step);
          judge.add(trainer.sharded.gather_full_state());
        }
        const Weights weights = trainer.sharded.gather_full_state();
        trainer.optimizer->exchange_average();
        const Weights averages = trainer.sharded.gather_full_state();
        trainer.optimizer->exchange_average();
        expect_equal(trainer.sharded.gather_full_state(), weights);
        for (const auto& [name, value] : averages) {
          SCOPED_TRACE(name);
          if (name.ends_with("unused") || name.ends_with("frozen")) {
            EXPECT_TRUE(at::equal(value, first.at(name))) << "it was never updated";
            continue;
          }
          EXPECT_TRUE(at::allclose(value.to(at::kDouble), judge.average(name), 1e-5, 1e-7));
          EXPECT_FALSE(at::equal(value, weights.at(name)));
        }
      }
    });
  }
}

TEST(WeightAverage, ChangesNoStepAndIgnoresThoseThatAreSkipped) {
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer got(mesh), want(mesh);
    got.optimizer->keep_average(kDecay);
    const auto skip = [&](Trainer& trainer) {
      trainer.accumulate(tokens_of(9));
      trainer.optimizer->step(1e-2, at::ones({1}), at::ones({1}));
      trainer.sharded.zero_grad();
    };
    skip(got), skip(want);
    Judge judge;
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(got.step(step), want.step(step));
      judge.add(got.sharded.gather_full_state());
      skip(got), skip(want);
      got.optimizer->exchange_average();
      got.optimizer->exchange_average();
    }
    expect_equal(got.sharded.gather_full_state(), want.sharded.gather_full_state());
    got.optimizer->exchange_average();
    for (const auto& [name, value] : got.sharded.gather_full_state()) {
      if (name.ends_with("unused") || name.ends_with("frozen")) continue;
      EXPECT_TRUE(at::allclose(value.to(at::kDouble), judge.average(name), 1e-5, 1e-7)) << name;
    }
  });
}

TEST(WeightAverage, IsNotTrainedAndIsAskedForOnce) {
  run_thread_ranks(1, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    EXPECT_THAT(error_of([&] { trainer.optimizer->exchange_average(); }), HasSubstr("keeps no average"));
    EXPECT_THAT(error_of([&] { trainer.optimizer->keep_average(1); }), HasSubstr("want above 0 and below 1"));
    trainer.optimizer->keep_average(kDecay);
    EXPECT_THAT(error_of([&] { trainer.optimizer->keep_average(kDecay); }), HasSubstr("keeps an average already"));
    trainer.step(0);
    trainer.optimizer->exchange_average();
    EXPECT_THAT(error_of([&] { trainer.step(1); }), HasSubstr("the model has its average weights"));
  });
}

}  // namespace
