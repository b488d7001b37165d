// Goal: every optimizer changes each element as torch.optim would, on any number of ranks.
// Method: the judge is torch::optim on whole parameters. Each step gives the judge the gradients that the ranks have
// reduced. So the two differ by the optimizers alone.
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <map>

#include "fsdp/optim/adafactor.h"
#include "fsdp/optim/muon.h"
#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr int kUpdates = 9;
constexpr double kRate = 1e-2;

using Parameters = std::map<std::string, at::Tensor>;
/// Updates those parameters that have a gradient.
using Judge = std::function<void()>;

/// A judge of torch::optim with a group for each parameter. `options_of` gives the options of a parameter.
template <class Optimizer, class OptionsOf>
Judge torch_judge(const Parameters& parameters, const OptionsOf& options_of) {
  using Options = std::invoke_result_t<OptionsOf, const std::string&, const at::Tensor&>;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& [name, parameter] : parameters) {
    groups.emplace_back(std::vector<at::Tensor>{parameter}, std::make_unique<Options>(options_of(name, parameter)));
  }
  const auto optimizer = std::make_shared<Optimizer>(std::move(groups), Options(kRate));
  return [optimizer] { optimizer->step(); };
}

Parameters without_aliases(Parameters state) {
  state.erase("head");  // tied to the embedding
  return state;
}

/// One block joins late and is left out once; each block has an unused and a frozen parameter.
void expect_updates_like(const std::function<Judge(const Parameters&)>& make_judge, const MakeOptimizer& make,
                         double most = 2e-6) {
  for (const int world_size : kWorldSizes) {
    run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, {}, 7, make);
      Parameters judged = without_aliases(trainer.sharded.gather_full_state());
      const Judge judge = make_judge(judged);
      const auto all = trainer.model->blocks;
      for (int step = 0; step < kUpdates; ++step) {
        choose_blocks(*trainer.model, all, step);
        trainer.accumulate(tokens_of(step));
        const auto gradients = trainer.sharded.gather_full_gradients();
        for (auto& [name, parameter] : judged)
          parameter.mutable_grad() = gradients.count(name) != 0 ? gradients.at(name) : at::Tensor();
        trainer.optimizer->step(kRate);
        trainer.sharded.zero_grad();
        judge();
      }
      for (const auto& [name, parameter] : without_aliases(trainer.sharded.gather_full_state()))
        EXPECT_THAT(distance(parameter, judged.at(name)), Le(most)) << name;
    });
  }
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(AdamW, UpdatesLikeTorchs) {
  const auto judge = [](const Parameters& parameters) {
    return torch_judge<torch::optim::AdamW>(parameters, [](const std::string&, const at::Tensor& p) {
      return torch::optim::AdamWOptions(kRate).betas({0.9, 0.95}).weight_decay(p.dim() >= 2 ? 0.1 : 0);
    });
  };
  expect_updates_like(judge, maker<fsdp::AdamW>(fsdp::AdamWOptions()));
}

TEST(Adam, UpdatesLikeTorchs) {
  fsdp::AdamOptions options;
  options.weight_decay = 0.3;
  const auto judge = [](const Parameters& parameters) {
    return torch_judge<torch::optim::Adam>(parameters, [](const std::string&, const at::Tensor& p) {
      return torch::optim::AdamOptions(kRate).betas({0.9, 0.999}).weight_decay(p.dim() >= 2 ? 0.3 : 0);
    });
  };
  expect_updates_like(judge, maker<fsdp::Adam>(options));
}

// The block that joins late has its first gradient while the others have had theirs.
TEST(Sgd, UpdatesLikeTorchs) {
  struct Case {
    double momentum, dampening;
    bool nesterov;
  };
  for (const Case c : {Case{0, 0, false}, {0.9, 0, false}, {0.9, 0.4, false}, {0.8, 0, true}}) {
    SCOPED_TRACE("momentum " + std::to_string(c.momentum) + " dampening " + std::to_string(c.dampening));
    fsdp::SgdOptions options;
    options.momentum = c.momentum;
    options.dampening = c.dampening;
    options.nesterov = c.nesterov;
    options.weight_decay = 0.2;
    const auto judge = [&](const Parameters& parameters) {
      return torch_judge<torch::optim::SGD>(parameters, [&](const std::string&, const at::Tensor& p) {
        torch::optim::SGDOptions o(kRate);
        o.momentum(c.momentum).dampening(c.dampening).nesterov(c.nesterov).weight_decay(p.dim() >= 2 ? 0.2 : 0);
        return o;
      });
    };
    expect_updates_like(judge, maker<fsdp::Sgd>(options));
  }
}

TEST(Sgd, RefusesNesterovWithoutMomentumOrWithDampening) {
  run_thread_ranks(1, [](fsdp::DeviceMesh& mesh) {
    fsdp::SgdOptions without, damped;
    without.nesterov = damped.nesterov = true;
    damped.momentum = 0.9;
    damped.dampening = 0.1;
    for (const auto& options : {without, damped})
      EXPECT_THAT(error_of([&] { Trainer(mesh, {}, 7, maker<fsdp::Sgd>(options)); }),
                  HasSubstr("want momentum above 0 and dampening 0"));
  });
}

/// Program 1 of the paper, element by element.
Judge lion_judge(const Parameters& parameters, double beta1, double beta2, double weight_decay) {
  auto averages = std::make_shared<Parameters>();
  return [=] {
    const at::NoGradGuard no_grad;
    for (const auto& [name, parameter] : parameters) {
      if (!parameter.grad().defined()) continue;
      const at::Tensor gradient = parameter.grad().contiguous();
      at::Tensor& average = (*averages)[name];
      if (!average.defined()) average = at::zeros_like(parameter);
      float* w = parameter.mutable_data_ptr<float>();
      float* m = average.mutable_data_ptr<float>();
      const float* g = gradient.const_data_ptr<float>();
      const double decay = parameter.dim() >= 2 ? weight_decay : 0;
      for (std::int64_t i = 0; i < parameter.numel(); ++i) {
        const double direction = beta1 * m[i] + (1 - beta1) * g[i];
        const double sign = (direction > 0) - (direction < 0);
        w[i] = static_cast<float>(w[i] - kRate * (sign + decay * w[i]));
        m[i] = static_cast<float>(beta2 * m[i] + (1 - beta2) * g[i]);
      }
    }
  };
}

TEST(Lion, UpdatesLikeThePaper) {
  fsdp::LionOptions options;
  options.weight_decay = 0.5;
  const auto judge = [](const Parameters& parameters) { return lion_judge(parameters, 0.9, 0.99, 0.5); };
  expect_updates_like(judge, maker<fsdp::Lion>(options));
}

/// The formulas of torch.optim.Adafactor for whole parameters, in double.
Judge adafactor_judge(const Parameters& parameters, double weight_decay) {
  struct State {
    double steps = 0;
    at::Tensor rows, columns, squares;
  };
  auto states = std::make_shared<std::map<std::string, State>>();
  return [=] {
    const at::NoGradGuard no_grad;
    constexpr double kEps = 1.1920928955078125e-7;
    for (const auto& [name, parameter] : parameters) {
      if (!parameter.grad().defined()) continue;
      State& state = (*states)[name];
      const at::Tensor g = parameter.grad().to(at::kDouble), w = parameter.to(at::kDouble);
      const double weight = std::pow(++state.steps, -0.8);
      const auto average = [&](at::Tensor& kept, const at::Tensor& now) {
        kept = kept.defined() ? kept + weight * (now - kept) : weight * now;
      };
      at::Tensor estimate;
      if (g.dim() > 1) {
        average(state.rows, g.square().mean(-1, true));
        average(state.columns, g.square().mean(-2, true));
        estimate = at::matmul(state.rows, state.columns) / state.rows.mean(-2, true).clamp_min(kEps);
      } else {
        average(state.squares, g.square());
        estimate = state.squares;
      }
      const auto rms = [](const at::Tensor& of) { return of.square().mean().sqrt().item<double>(); };
      const double size = std::max(1e-3, rms(w)) * std::min(kRate, 1 / std::sqrt(state.steps));
      const at::Tensor update = g / estimate.clamp_min(kEps * kEps).sqrt();
      parameter.copy_(w * (1 - kRate * (g.dim() > 1 ? weight_decay : 0)) - update * size / std::max(1.0, rms(update)));
    }
  };
}

TEST(Adafactor, UpdatesLikeTorchs) {
  fsdp::AdafactorOptions options;
  options.weight_decay = 0.3;
  const auto judge = [](const Parameters& parameters) { return adafactor_judge(parameters, 0.3); };
  expect_updates_like(judge, maker<fsdp::Adafactor>(options));
}

bool is_matrix_of_block(const fsdp::ParameterInfo& info) {
  return info.shape.size() == 2 && contains(info.name, "block");
}

/// The formulas of torch.optim.Muon for matrices of blocks. AdamW of torch for the others.
Judge muon_judge(const Parameters& parameters) {
  Parameters matrices, others;
  for (const auto& [name, parameter] : parameters) {
    const bool is_matrix = parameter.dim() == 2 && contains(name, "block");
    (is_matrix ? matrices : others).emplace(name, parameter);
  }
  const Judge adamw = torch_judge<torch::optim::AdamW>(others, [](const std::string&, const at::Tensor& p) {
    return torch::optim::AdamWOptions(kRate).betas({0.9, 0.95}).weight_decay(p.dim() >= 2 ? 0.1 : 0);
  });
  auto averages = std::make_shared<Parameters>();
  return [=] {
    adamw();
    const at::NoGradGuard no_grad;
    for (const auto& [name, parameter] : matrices) {
      if (!parameter.grad().defined()) continue;
      const at::Tensor& gradient = parameter.grad();
      at::Tensor& average = (*averages)[name];
      if (!average.defined()) average = at::zeros_like(parameter);
      average.lerp_(gradient, 0.05);
      const bool is_tall = parameter.size(0) > parameter.size(1);
      at::Tensor x = gradient.lerp(average, 0.95).to(at::kBFloat16);
      if (is_tall) x = x.t();
      x = x / x.norm().clamp_min(1e-7);
      for (int i = 0; i < 5; ++i) {
        const at::Tensor gram = at::matmul(x, x.t());
        x = 3.4445 * x + at::matmul(-4.7750 * gram + 2.0315 * at::matmul(gram, gram), x);
      }
      if (is_tall) x = x.t();
      parameter.mul_(1 - kRate * 0.1);
      parameter.sub_(x.to(at::kFloat), kRate * 0.2 * std::sqrt(std::max(parameter.size(0), parameter.size(1))));
    }
  };
}

fsdp::MuonOptions muon_of_blocks() {
  fsdp::MuonOptions options;
  options.is_matrix = is_matrix_of_block;
  return options;
}

// Newton-Schulz computes in bf16, so the two round otherwise.
TEST(Muon, UpdatesLikeTorchs) {
  expect_updates_like(muon_judge, maker<fsdp::Muon>(muon_of_blocks()), 2e-3);
}

TEST(Muon, MovesTheMatricesOfLayers) {
  const auto is_matrix = [](const char* name, std::vector<std::int64_t> shape) {
    fsdp::ParameterInfo info;
    info.name = name;
    info.shape = std::move(shape);
    return fsdp::is_hidden_matrix(info);
  };
  EXPECT_TRUE(is_matrix("model.layers.0.mlp.up_proj.weight", {8, 4}));
  EXPECT_TRUE(is_matrix("gpt_neox.layers.11.attention.dense.weight", {4, 4}));
  EXPECT_FALSE(is_matrix("model.layers.0.input_layernorm.weight", {4}));
  EXPECT_FALSE(is_matrix("model.embed_tokens.weight", {8, 4}));
  EXPECT_FALSE(is_matrix("lm_head.weight", {8, 4}));
  EXPECT_FALSE(is_matrix("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", {32, 4}));
}

/// A stack of matrices, as that of a convolution, and rows that are longer than any rank's part.
struct Stacked : torch::nn::Module {
  Stacked() {
    const at::Generator random = at::detail::createCPUGenerator(3);
    stack = register_parameter("stack", at::randn({5, 3, 7, 11}, random, at::kFloat));
    flat = register_parameter("flat", at::randn({2, 900}, random, at::kFloat));
    gain = register_parameter("gain", at::ones({}));
  }
  at::Tensor loss() const { return (stack.sin().sum() + flat.cos().square().sum()) * gain; }
  at::Tensor stack, flat, gain;
};

TEST(Adafactor, KeepsRowsAndColumnsOfEachMatrixOnEveryRank) {
  for (const int world_size : kWorldSizes) {
    run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      const auto module = std::make_shared<Stacked>(), alone = std::make_shared<Stacked>();
      fsdp::ShardedModel model(module, mesh);
      const auto unit = model.fully_shard(module);
      fsdp::Adafactor optimizer(model);
      Parameters judged;
      for (const auto& item : alone->named_parameters()) judged[item.key()] = item.value();
      const Judge judge = adafactor_judge(judged, 0);
      for (int step = 0; step < 4; ++step) {
        // The states must follow, also on ranks that have no element of the parameter.
        module->flat.set_requires_grad(step != 1);
        alone->flat.set_requires_grad(step != 1);
        unit->run(at::ones({1}), [&](const at::Tensor& in) { return module->loss() * in; }).backward();
        optimizer.step(kRate);
        model.zero_grad();
        alone->zero_grad();
        alone->loss().backward();
        judge();
      }
      for (const auto& [name, value] : model.gather_full_state())
        EXPECT_THAT(distance(value, judged.at(name)), Le(2e-6)) << name;
      const std::int64_t replicated = 15 * (7 + 11) + 2 + 900;
      const double bytes = mesh.control().all_reduce(static_cast<double>(optimizer.state_bytes()));
      EXPECT_EQ(bytes, 4.0 * (world_size * replicated + 1));
    });
  }
}

/// Every optimizer, with the options that make it look at all it has.
std::vector<MakeOptimizer> all_optimizers() {
  fsdp::SgdOptions damped;
  damped.momentum = 0.9;
  damped.dampening = 0.4;
  fsdp::AdamWOptions bf16;
  fsdp::AdamOptions int8;
  bf16.moments = fsdp::Moments::kBf16;
  int8.moments = fsdp::Moments::kInt8;
  return {maker<fsdp::AdamW>(fsdp::AdamWOptions()),
          maker<fsdp::Adam>(fsdp::AdamOptions()),
          maker<fsdp::Sgd>(damped),
          maker<fsdp::Lion>(fsdp::LionOptions()),
          maker<fsdp::AdamW>(bf16),
          maker<fsdp::Adam>(int8),
          maker<fsdp::Adafactor>(fsdp::AdafactorOptions()),
          maker<fsdp::Muon>(muon_of_blocks())};
}

/// Options that fit every optimizer.
fsdp::ShardOptions aligned() {
  fsdp::ShardOptions options;
  options.alignment = fsdp::kQuantisedBlock;
  return options;
}

TEST(Optimizer, TreatsEachParameterAsItsGroupSays) {
  fsdp::AdamWOptions options;
  options.group = [](const fsdp::ParameterInfo& info) {
    fsdp::ParameterGroup group = fsdp::decay_matrices(info);
    if (contains(info.name, "block0")) group.lr_scale = 0.25;
    if (contains(info.name, "down")) group.weight_decay = 0.7;
    if (contains(info.name, "bias")) group.betas = fsdp::Betas{0.5, 0.8};
    group.skip = contains(info.name, "tiny");
    return group;
  };
  const auto judge = [](Parameters parameters) {
    std::erase_if(parameters, [](const auto& item) { return contains(item.first, "tiny"); });
    return torch_judge<torch::optim::AdamW>(parameters, [](const std::string& name, const at::Tensor& p) {
      torch::optim::AdamWOptions o(contains(name, "block0") ? kRate / 4 : kRate);
      o.weight_decay(contains(name, "down") ? 0.7 : p.dim() >= 2 ? 0.1 : 0);
      o.betas(contains(name, "bias") ? std::make_tuple(0.5, 0.8) : std::make_tuple(0.9, 0.95));
      return o;
    });
  };
  expect_updates_like(judge, maker<fsdp::AdamW>(options));
}

TEST(Optimizer, LowersTheRateLayerByLayer) {
  const auto group = fsdp::with_layer_rates(
      fsdp::decay_matrices, 0.5, [](const fsdp::ParameterInfo& info) { return info.name == "norm" ? 0 : 3; });
  fsdp::ParameterInfo last, first;
  last.name = "norm";
  last.shape = {13};
  first.name = "embedding";
  first.shape = {19, 13};
  EXPECT_EQ(group(last).lr_scale, 1);
  EXPECT_EQ(group(first).lr_scale, 0.125);
  EXPECT_EQ(group(last).weight_decay, 0);
  EXPECT_FALSE(group(first).weight_decay);
}

TEST(Optimizer, ChangesItsWeightDecayWhereTheGroupHasNone) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    fsdp::AdamWOptions strong;
    strong.weight_decay = 0.6;
    Trainer changed(mesh), always(mesh, {}, 7, maker<fsdp::AdamW>(strong));
    changed.optimizer->set_weight_decay(0.6);
    changed.step(0);
    always.step(0);
    const auto state = changed.sharded.gather_full_state();
    for (const auto& [name, tensor] : always.sharded.gather_full_state())
      EXPECT_TRUE(at::equal(tensor, state.at(name))) << name;
  });
}

TEST(Optimizer, DividesTheGradientsByTheirScale) {
  for (const MakeOptimizer& make : all_optimizers()) {
    run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer scaled(mesh, aligned(), 7, make), plain(mesh, aligned(), 7, make);
      for (int step = 0; step < 3; ++step) {
        scaled.accumulate(tokens_of(step), 8);
        scaled.optimizer->step(kRate, at::full({1}, 8.0f));
        scaled.sharded.zero_grad();
        plain.step(step, kRate);
      }
      const auto state = scaled.sharded.gather_full_state();
      for (const auto& [name, tensor] : plain.sharded.gather_full_state())
        EXPECT_TRUE(at::equal(tensor, state.at(name))) << plain.optimizer->name() << " " << name;
    });
  }
}

TEST(Optimizer, LeavesEverythingAloneWhenAnInfIsFound) {
  for (const MakeOptimizer& make : all_optimizers()) {
    run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer skipping(mesh, aligned(), 7, make), plain(mesh, aligned(), 7, make);
      for (int step = 0; step < 4; ++step) {
        const bool skip = step == 0 || step == 2;
        const double loss = skipping.accumulate(tokens_of(step), skip ? std::numeric_limits<double>::infinity() : 1);
        EXPECT_TRUE(std::isfinite(loss));
        skipping.optimizer->step(kRate, {}, at::full({1}, skip ? 1.0f : 0.0f));
        skipping.sharded.zero_grad();
        if (!skip) plain.step(step, kRate);
      }
      EXPECT_EQ(skipping.optimizer->steps(), 4);
      EXPECT_EQ(skipping.optimizer->parameter_steps(), plain.optimizer->parameter_steps());
      const auto state = skipping.sharded.gather_full_state();
      for (const auto& [name, tensor] : plain.sharded.gather_full_state())
        EXPECT_TRUE(at::equal(tensor, state.at(name))) << plain.optimizer->name() << " " << name;
    });
  }
}

// A skipped parameter's states would grow if its gradient were used.
TEST(Optimizer, KeepsNothingOfASkippedParameter) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    fsdp::AdamWOptions options;
    options.group = [](const fsdp::ParameterInfo&) { return fsdp::ParameterGroup{.skip = true}; };
    Trainer trainer(mesh, {}, 7, maker<fsdp::AdamW>(options));
    trainer.step(0);
    for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
      EXPECT_TRUE(at::equal(tensor, make_model()->named_parameters()[name])) << name;
    for (const auto& unit : trainer.sharded.units())
      for (const auto& [name, state] : trainable_part(*unit).states()) EXPECT_FALSE(at::any(state).item<bool>());
    for (const auto& unit : trainer.optimizer->parameter_steps()) EXPECT_THAT(unit, Each(0));
  });
}

}  // namespace
