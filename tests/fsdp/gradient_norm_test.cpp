// Goal: the norm over all ranks is that of the whole gradient, and clipping by it trains as torch.nn.utils clips.
// Method: plain autograd gives the gradients of the unsharded model, and torch.nn.utils.clip_grad_norm_ clips them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <limits>

#include "fsdp/optim/grad_scaler.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::HasSubstr;
using ::testing::Le;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kOrders[] = {1, 2, kInfinity, 0.5, 3, 7.25};

bool is_common(double order) {
  return order == 1 || order == 2 || std::isinf(order);
}

// AdamW divides by the size of a gradient, which hides a scale. A large epsilon shows it.
fsdp::AdamWOptions strong_epsilon() {
  fsdp::AdamWOptions options;
  options.eps = 0.1;
  return options;
}

TEST(GradientNorm, IsThatOfTheWholeModelAfterOneReduction) {
  for (const int world_size : kWorldSizes) {
    for (const double order : kOrders) {
      Reference reference;
      reference.accumulate(tokens_of(0));
      const double norm = torch::nn::utils::clip_grad_norm_(reference.parameters, kInfinity, order);
      run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
        Trainer trainer(mesh);
        trainer.accumulate(tokens_of(0));
        const auto before = trainer.sharded.gather_full_gradients();
        const std::int64_t collectives = mesh.shard().collectives();
        const auto got = fsdp::gradient_norm(trainer.sharded, norm / 3, order);
        EXPECT_EQ(mesh.shard().collectives() - collectives, mesh.world_size() == 1 ? 0 : is_common(order) ? 1 : 2);
        EXPECT_THAT(relative(got.norm.item<double>(), norm), Le(2e-6));
        EXPECT_THAT(relative(got.grad_scale.item<double>(), 3), Le(1e-5));
        EXPECT_EQ(got.found_inf.item<float>(), 0);
        EXPECT_EQ(fsdp::gradient_norm(trainer.sharded, norm * 2, order).grad_scale.item<float>(), 1);
        EXPECT_FALSE(fsdp::gradient_norm(trainer.sharded, 0, order).grad_scale.defined());
        for (const auto& [name, gradient] : trainer.sharded.gather_full_gradients())
          EXPECT_TRUE(at::equal(gradient, before.at(name))) << name << " is scaled by the optimizer alone";
      });
    }
  }
}

TEST(GradientNorm, ClipsLikeTorch) {
  for (const int world_size : kWorldSizes) {
    for (const double order : kOrders) {
      constexpr int kClippedSteps = 6;
      constexpr double kMost = 0.2;
      Reference reference;
      std::vector<double> truth;
      for (int step = 0; step < kClippedSteps; ++step) {
        truth.push_back(reference.accumulate(tokens_of(step)));
        EXPECT_GT(torch::nn::utils::clip_grad_norm_(reference.parameters, kMost, order), kMost * 0.2);
        reference.update(1e-2, strong_epsilon());
      }
      run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
        Trainer trainer(mesh, {}, 7, maker<fsdp::AdamW>(strong_epsilon()));
        for (int step = 0; step < kClippedSteps; ++step) {
          EXPECT_THAT(relative(trainer.accumulate(tokens_of(step)), truth[step]), Le(1e-5)) << step;
          const auto norm = fsdp::gradient_norm(trainer.sharded, kMost, order);
          trainer.optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
          trainer.sharded.zero_grad();
        }
        const auto state = trainer.sharded.gather_full_state();
        for (const auto& item : reference.model->named_parameters())
          EXPECT_THAT(distance(state.at(item.key()), item.value()), Le(1e-5)) << item.key();
      });
    }
  }
}

// A maximum over ranks must not drop a NaN, whichever rank has it.
TEST(GradientNorm, FindsWhatIsNotFiniteOnAnyRank) {
  for (const int world_size : kWorldSizes) {
    for (const double bad : {std::nan(""), kInfinity, -kInfinity}) {
      for (const double order : kOrders) {
        run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
          Trainer trainer(mesh);
          trainer.accumulate(tokens_of(0));
          if (mesh.rank() == mesh.world_size() - 1)
            trainable_part(*trainer.sharded.units()[0]).gradient_shard()[0] = bad;
          const auto norm = fsdp::gradient_norm(trainer.sharded, 1, order);
          EXPECT_FALSE(std::isfinite(norm.norm.item<double>()));
          EXPECT_EQ(norm.found_inf.item<float>(), 1);
          trainer.optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
          for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
            EXPECT_TRUE(at::equal(tensor, make_model()->named_parameters()[name])) << name;
        });
      }
    }
  }
}

TEST(GradientNorm, OfNoGradientsIsZero) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    for (const double order : kOrders) EXPECT_EQ(fsdp::gradient_norm(trainer.sharded, 1, order).norm.item<double>(), 0);
  });
}

// Powers of a gradient leave the range of fp32, and even that of fp64, long before the norm does.
TEST(GradientNorm, OfAHighOrderNeitherVanishesNorOverflows) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    for (const double size : {1e-20, 1.0, 1e20}) {
      for (const double order : {0.25, 9.0, 60.0}) {
        Trainer trainer(mesh);
        trainer.accumulate(tokens_of(0));
        double count = 0;
        for (const auto& unit : trainer.sharded.units()) {
          for (const auto& segment : unit->segments()) {
            if (!segment->gradient_shard().defined()) continue;
            segment->gradient_shard().fill_(size);
            count += static_cast<double>(segment->gradient_shard().numel());
          }
        }
        count = mesh.shard().all_reduce(count);
        const auto norm = fsdp::gradient_norm(trainer.sharded, 0, order);
        EXPECT_THAT(relative(norm.norm.item<double>(), size * std::pow(count, 1 / order)), Le(1e-5))
            << size << " of order " << order;
        EXPECT_EQ(norm.found_inf.item<float>(), 0);
      }
    }
  });
}

TEST(GradientNorm, OfAnOrderThatIsNoneIsAnErrorThatNamesIt) {
  run_thread_ranks(1, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    for (const double order : {0.0, -1.0, std::nan("")})
      EXPECT_THAT(error_of([&] { fsdp::gradient_norm(trainer.sharded, 1, order); }),
                  HasSubstr("of the norm: want a number above 0, or infinity"));
  });
}

}  // namespace
