// Goal: recomputed parts give the same numbers with the same collectives, in less memory.
// Method: the small model with its blocks recomputed inside of their units, against the same model without.
#include "fsdp/engine/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "fsdp/engine/random_state.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::HasSubstr;
using State = std::map<std::string, at::Tensor>;

/// Recomputes a block inside of its unit's run().
Wrap recomputing(std::shared_ptr<fsdp::Unit> unit, const Block& block) {
  return [unit, &block](at::Tensor input, const std::function<at::Tensor(at::Tensor)>& forward) {
    return unit->run(std::move(input), [&](at::Tensor in) {
      const auto part = [forward](std::vector<at::Tensor> list) { return std::vector<at::Tensor>{forward(list[0])}; };
      return fsdp::recompute({std::move(in)}, part, block)[0];
    });
  };
}

/// A trainer whose blocks are recomputed, all or every second one.
struct Recomputing : Trainer {
  explicit Recomputing(fsdp::DeviceMesh& m, std::size_t every = 1, const fsdp::ShardOptions& options = {})
      : Trainer(m, options) {
    for (std::size_t i = 0; i < model->blocks.size(); i += every)
      model->blocks[i]->wrap = recomputing(sharded.units()[i], *model->blocks[i]);
  }
};

void expect_equal(const State& got, const State& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) EXPECT_TRUE(at::equal(got.at(name), value)) << name;
}

TEST(Recompute, IsBitwiseEqualWithTheSameCollectives) {
  for (const int world_size : kWorldSizes) {
    for (const std::size_t every : {1u, 2u}) {
      run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
        const auto collectives = [&](Trainer& trainer, std::vector<double>& losses) {
          const std::int64_t before = mesh.shard().collectives();
          for (int step = 0; step < 4; ++step) losses.push_back(trainer.step(step));
          return mesh.shard().collectives() - before;
        };
        std::vector<double> plain_losses, losses;
        Trainer plain(mesh);
        Recomputing recomputed(mesh, every);
        const std::int64_t want = collectives(plain, plain_losses), got = collectives(recomputed, losses);
        EXPECT_EQ(losses, plain_losses);
        EXPECT_EQ(got, want);
        for (std::size_t i = 0; i < plain.sharded.units().size(); ++i)
          EXPECT_EQ(recomputed.sharded.units()[i]->gathers(), plain.sharded.units()[i]->gathers()) << "unit " << i;
        expect_equal(recomputed.sharded.gather_full_state(), plain.sharded.gather_full_state());
      });
    }
  }
}

TEST(Recompute, IsBitwiseEqualWithAccumulationAndInBf16) {
  fsdp::ShardOptions options;
  options.precision.param_dtype = at::kBFloat16;
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer plain(mesh, options);
    Recomputing recomputed(mesh, 1, options);
    for (Trainer* trainer : {&plain, static_cast<Trainer*>(&recomputed)}) {
      trainer->sharded.set_requires_gradient_sync(false);
      trainer->accumulate(tokens_of(0), 0.5);
      trainer->sharded.set_requires_gradient_sync(true);
      trainer->accumulate(tokens_of(1), 0.5);
    }
    expect_equal(recomputed.sharded.gather_full_gradients(), plain.sharded.gather_full_gradients());
  });
}

struct Noisy : torch::nn::Module {
  Noisy() { weight = register_parameter("weight", at::linspace(-1, 1, 16).view({4, 4})); }
  at::Tensor forward(const at::Tensor& x) const { return at::dropout(at::tanh(x.matmul(weight)), 0.5, true); }
  at::Tensor weight;
};

TEST(Recompute, DrawsTheSameRandomNumbersAgain) {
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  const auto gradient_and_next = [&](bool recomputed) {
    const auto model = std::make_shared<Noisy>();
    fsdp::ShardedModel sharded(model, alone);
    const auto unit = sharded.fully_shard(model);
    at::manual_seed(3);
    const auto part = [&](std::vector<at::Tensor> in) { return std::vector<at::Tensor>{model->forward(in[0])}; };
    const at::Tensor out = unit->run(at::ones({5, 4}), [&](at::Tensor in) {
      return recomputed ? fsdp::recompute({in}, part, *model)[0] : part({in})[0];
    });
    at::rand({1});  // other random numbers between forward and backward
    out.sum().backward();
    return std::pair(sharded.gather_full_gradients().at("weight"), at::rand({3}));
  };
  const auto plain = gradient_and_next(false), recomputed = gradient_and_next(true);
  EXPECT_TRUE(at::equal(recomputed.first, plain.first));
  EXPECT_TRUE(at::equal(recomputed.second, plain.second)) << "what is drawn after backward";
}

TEST(Recompute, TrainsWhereNoInputNeedsAGradient) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const auto gradients = [&](bool recomputed) {
      const auto model = make_model();
      model->embedding.set_requires_grad(false);
      fsdp::ShardedModel sharded(model, mesh);
      for (const auto& block : model->blocks) {
        const auto unit = sharded.fully_shard(block);
        block->wrap = recomputed ? recomputing(unit, *block) : wrapper(unit);
      }
      model->wrap = wrapper(sharded.fully_shard(model));
      model->forward(part_of(tokens_of(0), mesh.rank(), 2)).backward();
      return sharded.gather_full_gradients();
    };
    const State plain = gradients(false), recomputed = gradients(true);
    EXPECT_EQ(recomputed.count("block0.up"), 1u);
    expect_equal(recomputed, plain);
  });
}

TEST(Recompute, OfWhatDoesNotTrainIsNotRecorded) {
  const auto model = std::make_shared<Noisy>();
  model->weight.set_requires_grad(false);
  int calls = 0;
  const auto part = [&](std::vector<at::Tensor> in) {
    return ++calls, std::vector<at::Tensor>{in[0].matmul(model->weight)};
  };
  EXPECT_FALSE(fsdp::recompute({at::ones({2, 4})}, part, *model)[0].requires_grad());
  at::Tensor x = at::ones({2, 4}).requires_grad_();
  fsdp::recompute({x}, part, *model)[0].sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(calls, 3);
}

TEST(Recompute, TakesAndGivesLists) {
  const auto model = std::make_shared<Noisy>();
  const at::Tensor rows = at::tensor({2, 0, 2}, at::kLong);
  const auto part = [&](std::vector<at::Tensor> in) {
    EXPECT_FALSE(in[1].defined());
    const at::Tensor chosen = in[0].index_select(0, in[2]);
    return std::vector<at::Tensor>{chosen.matmul(model->weight), chosen * 2, in[2] + 1};
  };
  const auto run = [&](bool recomputed) {
    at::Tensor x = at::arange(12, at::kFloat).view({3, 4}).requires_grad_();
    model->weight.mutable_grad() = at::Tensor();
    const std::vector<at::Tensor> in{x, at::Tensor(), rows};
    const auto out = recomputed ? fsdp::recompute(in, part, *model) : part(in);
    EXPECT_FALSE(out[2].requires_grad());
    (out[0].sum() + out[1].pow(2).sum()).backward();
    return State{{"x", x.grad()}, {"weight", model->weight.grad().clone()}, {"rows", out[2]}};
  };
  expect_equal(run(true), run(false));
}

TEST(Recompute, WithoutADerivativeOrAnOutputIsAnError) {
  const auto model = std::make_shared<Noisy>();
  at::Tensor x = at::ones({2, 4}).requires_grad_();
  const auto part = [&](std::vector<at::Tensor> in) { return std::vector<at::Tensor>{in[0].matmul(model->weight)}; };
  const at::Tensor out = fsdp::recompute({x}, part, *model)[0];
  EXPECT_THAT(error_of([&] { torch::autograd::grad({out.sum()}, {x}, {}, true, /*create_graph=*/true); }),
              HasSubstr("recompute: backward with create_graph; a recomputed part has no second derivative"));
  const auto none = [](std::vector<at::Tensor>) { return std::vector<at::Tensor>{at::Tensor()}; };
  EXPECT_THAT(error_of([&] { fsdp::recompute({x}, none, *model); }), HasSubstr("recompute: output 0 is undefined"));
}

TEST(Recompute, ThatThrowsLeavesTheEngineReadyForTheNextStep) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer plain(mesh);
    Recomputing recomputed(mesh);
    const Wrap usual = recomputed.model->blocks[1]->wrap;
    int calls = 0;
    recomputed.model->blocks[1]->wrap = [&](at::Tensor input, const auto& forward) {
      return usual(input, [&, forward](at::Tensor in) {
        TORCH_CHECK(++calls < 2, "thrown in the recompute");
        return forward(in);
      });
    };
    EXPECT_THAT(error_of([&] { recomputed.accumulate(tokens_of(0)); }), HasSubstr("thrown in the recompute"));
    recomputed.sharded.abandon_step();
    recomputed.model->blocks[1]->wrap = usual;
    for (int step = 0; step < 2; ++step) EXPECT_EQ(recomputed.step(step), plain.step(step));
  });
}

}  // namespace
