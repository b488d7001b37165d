// Goal: the memory for gradients is not cleared, and nobody ever sees what was in it.
// Method: memory full of NaN before a backward; functions that write gradients themselves; hooks of others.
#include "fsdp/engine/gradient_place.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <limits>

#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"

namespace {

using ::testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// x * gain. Its backward writes the gradient of gain itself, with `write`.
struct OwnGain : torch::autograd::Function<OwnGain> {
  using Write = std::function<void(const at::Tensor& gain, const at::Tensor& gradient)>;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain, const Write* write) {
    context->save_for_backward({x, gain});
    context->saved_data["write"] = reinterpret_cast<std::int64_t>(write);
    return x * gain;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& write = *reinterpret_cast<const Write*>(context->saved_data["write"].toInt());
    write(saved[1], (gradients[0] * saved[0]).sum(0));
    return {gradients[0] * saved[1], {}, {}};
  }
};

/// A module of one gain.
struct Gain : torch::nn::Module {
  Gain() { gain = register_parameter("gain", at::ones({5})); }
  at::Tensor gain;
};

/// One backward of sum(x * gain), where `write` brings the gain's gradient.
void backward_with(fsdp::Unit& unit, Gain& module, const OwnGain::Write& write, int uses = 1) {
  const at::Tensor x = at::arange(15, at::kFloat).view({3, 5}).requires_grad_();
  unit.run(x,
           [&](const at::Tensor& in) {
             at::Tensor out = in;
             for (int i = 0; i < uses; ++i) out = out + OwnGain::apply(in, module.gain, &write);
             return out;
           })
      .sum()
      .backward();
}

at::Tensor gradient_of_one_use() {
  return at::arange(15, at::kFloat).view({3, 5}).sum(0);
}

TEST(FirstGradients, AreSeenAloneWhereTheMemoryWasFullOfNan) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    const auto plain = make_model();
    trainer.accumulate(tokens_of(0));
    // With one rank the reduction's input is the gradient shard, and its memory serves the next step, too.
    for (const auto& unit : trainer.sharded.units()) trainable_part(*unit).gradient_shard().fill_(kNan);
    trainer.sharded.zero_grad();
    trainer.accumulate(tokens_of(1));
    plain->forward(tokens_of(1)).backward();
    const auto got = trainer.sharded.gather_full_gradients();
    for (const auto& item : plain->named_parameters()) {
      if (!item.value().grad().defined()) continue;
      ASSERT_EQ(got.count(item.key()), 1U) << item.key();
      EXPECT_TRUE(at::allclose(got.at(item.key()), item.value().grad(), 1e-5, 1e-6)) << item.key();
    }
    for (const auto& unit : trainer.sharded.units())
      EXPECT_TRUE(trainable_part(*unit).gradient_shard().isfinite().all().item<bool>())
          << unit->name() << ": padding or an unused parameter is not zero";
  });
}

TEST(FirstGradients, AreWrittenByAFunctionThatAsksForTheirPlace) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [world_size](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<Gain>();
      fsdp::ShardedModel sharded(module, mesh);
      const auto unit = sharded.fully_shard(module, {});
      int writes = 0, additions = 0;
      const OwnGain::Write write = [&](const at::Tensor& gain, const at::Tensor& gradient) {
        const auto place = fsdp::place_of_gradient(gain);
        ASSERT_TRUE(place.has_value());
        if (place->defined()) {
          place->fill_(kNan).copy_(gradient);
          gain.mutable_grad() = *place;
          ++writes;
        } else {
          gain.grad().add_(gradient);
          ++additions;
        }
      };
      backward_with(*unit, *module, write, /*uses=*/2);
      backward_with(*unit, *module, write);
      // With one rank the second backward adds to what is there. With more, the first one's sum has left by then.
      EXPECT_EQ(writes, world_size);
      EXPECT_EQ(additions, 3 - world_size);
      EXPECT_TRUE(at::equal(sharded.gather_full_gradients().at("gain"), gradient_of_one_use() * 3));
      sharded.zero_grad();
      backward_with(*unit, *module, write);
      EXPECT_EQ(writes, world_size + 1);
      EXPECT_TRUE(at::equal(sharded.gather_full_gradients().at("gain"), gradient_of_one_use()));
    });
  }
}

TEST(FirstGradients, ThatWereTakenAndNotWrittenAreAnErrorThatNamesTheParameter) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<Gain>();
    fsdp::ShardedModel sharded(module, mesh);
    const auto unit = sharded.fully_shard(module, {});
    const auto take = [](const at::Tensor& gain, const at::Tensor&) { (void)fsdp::place_of_gradient(gain); };
    EXPECT_THAT(error_of([&] { backward_with(*unit, *module, take); }), HasSubstr("the gradient of gain was removed"));
  });
}

TEST(FirstGradients, HaveNoPlaceOutsideOfTheirBackward) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    const auto module = std::make_shared<Gain>();
    EXPECT_EQ(fsdp::place_of_gradient(module->gain), std::nullopt) << "not sharded yet";
    EXPECT_EQ(fsdp::place_of_gradient(at::ones({2})), std::nullopt);
    fsdp::ShardedModel sharded(module, mesh);
    const auto unit = sharded.fully_shard(module, {});
    ASSERT_TRUE(fsdp::place_of_gradient(module->gain).has_value());
    EXPECT_FALSE(fsdp::place_of_gradient(module->gain)->defined());
    // A backward that fails gives the memory back while the place is open.
    const auto fail = [](const at::Tensor&, const at::Tensor&) {
      throw std::runtime_error("no memory for this batch");
    };
    EXPECT_THAT(error_of([&] { backward_with(*unit, *module, fail); }), HasSubstr("no memory for this batch"));
    sharded.abandon_step();
    EXPECT_FALSE(fsdp::place_of_gradient(module->gain)->defined());
  });
}

/// Counts how often autograd has accumulated.
struct Counting : torch::autograd::PostAccumulateGradHook {
  explicit Counting(int& c) : count(c) {}
  void operator()(const at::Tensor&) override { ++count; }
  int& count;
};

TEST(FirstGradients, OfAParameterWithSomebodyElsesHookAreAddedToZeros) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<Gain>();
      int count = 0;
      torch::autograd::impl::set_post_acc_grad_hooks(module->gain, std::make_unique<Counting>(count));
      fsdp::ShardedModel sharded(module, mesh);
      const auto unit = sharded.fully_shard(module, {});
      for (int step = 0; step < 2; ++step) {
        const at::Tensor x = at::arange(15, at::kFloat).view({3, 5}).requires_grad_();
        unit->run(x, [&](const at::Tensor& in) { return in * module->gain; }).sum().backward();
        EXPECT_TRUE(at::equal(sharded.gather_full_gradients().at("gain"), gradient_of_one_use()));
        trainable_part(*unit).gradient_shard().fill_(kNan);
        sharded.zero_grad();
      }
      EXPECT_EQ(count, 2);
      EXPECT_EQ(fsdp::place_of_gradient(module->gain), std::nullopt);
    });
  }
}

}  // namespace
