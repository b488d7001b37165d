// Goal: moments of fewer bits lose nothing on average, and a run does not depend on how its parameters are sharded.
// Method: single updates beside their formulas in double, slices beside whole parameters, and trainings of a model
// whose matrices are wide enough to be quantised. tests/peers/optimizers_test.py trains beside the programs of others.
#include "fsdp/optim/moments.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>

#include "fsdp/optim/optimizers.h"
#include "fsdp/text/json.h"
#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/thread_ranks.h"
#include "tests/places.h"

namespace {

using fsdp::Checkpointer;
using fsdp::Moments;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr Moments kSmall[] = {Moments::kBf16, Moments::kInt8};

/// A parameter with its gradient and its states.
struct Whole {
  Whole(Moments kind, std::int64_t numel, std::uint64_t seed = 1) : moments(kind) {
    const at::Generator random = at::detail::createCPUGenerator(seed);
    values.parameter = at::randn({numel}, random, at::kFloat);
    values.gradient = at::randn({numel}, random, at::kFloat).pow_(3);
    const fsdp::ParameterInfo info{"p", {}, {numel}, numel};
    for (const auto& [name, form] : fsdp::states_of(kind))
      values.states.push_back(form.is_of(info) ? at::zeros({form.values(numel)}, form.dtype) : at::Tensor());
  }

  Whole copy() const {
    Whole out = *this;
    out.values.parameter = values.parameter.clone();
    out.values.gradient = values.gradient.clone();
    for (at::Tensor& state : out.values.states)
      if (state.defined()) state = state.clone();
    return out;
  }

  /// Elements [begin, end) as views.
  fsdp::SmallMoments part(std::int64_t begin, std::int64_t end) const {
    fsdp::SmallMoments out{values.parameter.slice(0, begin, end), values.gradient.slice(0, begin, end), {}, begin};
    const auto specs = fsdp::states_of(moments);
    for (std::size_t s = 0; s < specs.size(); ++s) {
      const std::int64_t block = specs[s].form.block;
      const at::Tensor& state = values.states[s];
      out.states.push_back(state.defined() ? state.slice(0, begin / block, specs[s].form.values(end)) : state);
    }
    return out;
  }

  void expect_equal(const Whole& other, const char* what) const {
    EXPECT_TRUE(at::equal(values.parameter, other.values.parameter)) << what;
    for (std::size_t s = 0; s < values.states.size(); ++s) {
      if (!values.states[s].defined()) continue;
      EXPECT_TRUE(at::equal(values.states[s], other.values.states[s])) << what << ", state " << s;
    }
  }

  Moments moments;
  fsdp::SmallMoments values;
};

fsdp::AdamStep step_of(int number) {
  fsdp::AdamStep step;
  step.beta1 = 0.9;
  step.beta2 = 0.95;
  step.eps = 1e-8;
  step.decay = 1e-3;
  step.grad_scale = 2;
  step.size = 1e-2 / (1 - std::pow(0.9, number));
  step.root = std::sqrt(1 - std::pow(0.95, number));
  return step;
}

std::uint64_t key_of(int number) {
  return fsdp::random_key(5, "p", static_cast<std::uint64_t>(number));
}

TEST(Moments, OfBf16AreNeighboursOfTheExactOnesAndEqualThemOnAverage) {
  constexpr std::int64_t kMany = 1 << 18;
  Whole one(Moments::kBf16, kMany);
  one.values.gradient.fill_(0.7);
  fsdp::update_moments(Moments::kBf16, one.values, step_of(1), key_of(1));
  const double exact[] = {0.1 * 0.35, 0.05 * 0.35 * 0.35};  // of the gradient over its scale
  for (int s = 0; s < 2; ++s) {
    const at::Tensor kept = one.values.states[s].to(at::kDouble);
    const double step = std::exp2(std::floor(std::log2(exact[s])) - 7);  // bf16 has 8 bits
    EXPECT_LT((kept - exact[s]).abs().max().item<double>(), step);
    EXPECT_EQ(std::get<0>(at::_unique(kept)).numel(), 2) << "one above, one below";
    EXPECT_NEAR(kept.mean().item<double>(), exact[s], 5 * step / std::sqrt(static_cast<double>(kMany)));
  }
  const at::Tensor up = one.values.states[0].to(at::kDouble).gt(exact[0]).to(at::kDouble);
  const at::Tensor other = one.values.states[1].to(at::kDouble).gt(exact[1]).to(at::kDouble);
  const auto correlation = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a - a.mean()) * (b - b.mean())).mean().item<double>();
  };
  EXPECT_NEAR(correlation(up, other), 0, 5e-3) << "the two moments have bits of their own";
  EXPECT_NEAR(correlation(up.slice(0, 1), up.slice(0, 0, -1)), 0, 5e-3) << "as have neighbours";
  EXPECT_NE(key_of(1), key_of(2));
  EXPECT_NE(fsdp::random_key(5, "p", 1), fsdp::random_key(6, "p", 1));
  EXPECT_NE(fsdp::random_key(5, "p", 1), fsdp::random_key(5, "q", 1));
}

// With rounding to nearest the average would stay 1: each step changes it by less than half of what bf16 can hold.
TEST(Moments, OfBf16FollowChangesThatAreSmallerThanTheirLastBit) {
  Whole one(Moments::kBf16, 1 << 14);
  one.values.states[0].fill_(1);
  one.values.gradient.fill_(0);
  for (int number = 1; number <= 400; ++number) {
    fsdp::AdamStep step = step_of(number);
    step.beta1 = 0.999;
    fsdp::update_moments(Moments::kBf16, one.values, step, key_of(number));
  }
  EXPECT_NEAR(one.values.states[0].to(at::kDouble).mean().item<double>(), std::pow(0.999, 400), 2e-3);
}

// Codes are within half a step of the map, which is 1.4 % of a block's largest value for numbers with signs.
TEST(Moments, OfInt8AreCloseToTheExactOnes) {
  Whole one(Moments::kInt8, 5000);
  const at::Tensor gradient = one.values.gradient.to(at::kDouble) / 2;
  fsdp::update_moments(Moments::kInt8, one.values, step_of(1), key_of(1));
  const at::Tensor scale = one.values.states[4], exact = gradient * 0.1;
  for (std::int64_t block = 0; block < 20; ++block) {
    const at::Tensor in = exact.slice(0, block * 256, (block + 1) * 256);
    EXPECT_THAT(relative(scale[block].item<double>(), in.abs().max().item<double>()), Le(1e-6));
  }
  EXPECT_EQ(one.values.states[3].max().item<int>(), 255) << "the largest square of a block has the code of 1";
  // A step without a gradient gives the weights what the codes mean.
  one.values.gradient.zero_();
  fsdp::AdamStep still = step_of(1);
  still.beta1 = still.beta2 = 1;
  still.decay = 0;
  still.eps = 1;
  still.size = still.root = 1;
  const at::Tensor before = one.values.parameter.clone();
  fsdp::update_moments(Moments::kInt8, one.values, still, key_of(2));
  const at::Tensor want = exact / ((gradient.square() * 0.05).sqrt() + 1);
  const at::Tensor error = (before - one.values.parameter - want).abs();
  for (std::int64_t block = 0; block < 20; ++block)
    EXPECT_LT(error.slice(0, block * 256, (block + 1) * 256).max().item<double>(), 0.012 * scale[block].item<double>());
}

/// The values of a hexadecimal text.
at::Tensor bytes_of(const std::string& digits) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(digits.size() / 2)}, at::kInt);
  for (std::int64_t i = 0; i < bytes.numel(); ++i)
    bytes.mutable_data_ptr<int>()[i] = std::stoi(digits.substr(static_cast<std::size_t>(2 * i), 2), nullptr, 16);
  return bytes;
}

// tests/peers/optimizers_test.py writes the file. A number that lies between two codes may be rounded to either.
TEST(Moments, OfInt8HaveTheCodesOfTorchao) {
  std::ifstream file(::test::source_folder() + "/tests/golden/adamw8bit_of_torchao.json");
  std::ostringstream text;
  text << file.rdbuf();
  const auto golden = fsdp::Json::parse(text.str());
  Whole one(Moments::kInt8, 4096);
  for (std::int64_t i = 0; i < 4096; ++i) {
    const double share = static_cast<double>(static_cast<std::uint32_t>(i) * 2654435761u) / 2147483648.0 - 1;
    one.values.gradient.mutable_data_ptr<float>()[i] = static_cast<float>(share * share * share * share * share);
  }
  fsdp::AdamStep step = step_of(1);
  step.grad_scale = 1;
  fsdp::update_moments(Moments::kInt8, one.values, step, key_of(1));
  for (const auto& [name, codes, scales] : {std::tuple("exp_avg", 2, 4), std::tuple("exp_avg_sq", 3, 5)}) {
    const std::string prefix = std::string(name) + "_";
    const at::Tensor want = bytes_of(golden.at(prefix + "codes").as_string());
    const at::Tensor apart = (one.values.states[codes].to(at::kInt) - want).abs();
    EXPECT_THAT(apart.max().item<int>(), Le(1)) << name;
    EXPECT_THAT(apart.sum().item<std::int64_t>(), Le(4)) << name;
    std::int64_t block = 0;
    for (const auto& scale : golden.at(prefix + "scales").as_array())
      EXPECT_THAT(relative(one.values.states[scales][block++].item<double>(), scale.as_double()), Le(1e-6)) << name;
  }
}

TEST(Moments, OfASliceHaveTheBitsThatTheyHaveInTheWholeParameter) {
  for (const Moments kind : kSmall) {
    const std::int64_t numel = 5000, unit = kind == Moments::kInt8 ? 256 : 32;
    for (const std::int64_t first : {unit, 5 * unit, 11 * unit}) {
      Whole whole(kind, numel);
      Whole parts = whole.copy();
      for (int number = 1; number <= 3; ++number) {
        fsdp::update_moments(kind, whole.values, step_of(number), key_of(number));
        fsdp::update_moments(kind, parts.part(0, first), step_of(number), key_of(number));
        fsdp::update_moments(kind, parts.part(first, numel), step_of(number), key_of(number));
      }
      whole.expect_equal(parts, kind == Moments::kInt8 ? "int8" : "bf16");
    }
  }
}

// The weights differ by how LibTorch rounds a square root.
TEST(Moments, HaveTheSameBitsOnOtherDevices) {
  for (const Moments kind : kSmall) {
    Whole pass(kind, 7001);
    Whole operations = pass.copy();
    for (int number = 1; number <= 5; ++number) {
      // The moments fall, and so must the scale of the last block, of which there is a part.
      for (const Whole* one : {&pass, &operations}) one->values.gradient.mul_(number < 3 ? 1 : 0);
      fsdp::update_moments(kind, pass.values, step_of(number), key_of(number));
      fsdp::update_by_operations(kind, operations.values, step_of(number), key_of(number));
    }
    EXPECT_TRUE(at::allclose(pass.values.parameter, operations.values.parameter, 1e-6, 1e-7));
    operations.values.parameter = pass.values.parameter;
    pass.expect_equal(operations, kind == Moments::kInt8 ? "int8" : "bf16");
  }
}

/// Two matrices of 4096 elements or more, of which one ends inside a block, and a bias.
struct Wide : torch::nn::Module {
  Wide() {
    const at::Generator random = at::detail::createCPUGenerator(3);
    up = register_parameter("up", at::randn({75, 66}, random, at::kFloat) * 0.1);
    bias = register_parameter("bias", at::zeros({75}));
    down = register_parameter("down", at::randn({66, 75}, random, at::kFloat) * 0.1);
  }
  at::Tensor loss(const at::Tensor& x) const {
    return (at::matmul(at::tanh(at::matmul(x, up.t()) + bias), down.t()) - x.sin()).square().mean();
  }
  at::Tensor up, bias, down;
};

struct Training {
  Training(fsdp::DeviceMesh& on, Moments moments) : mesh(on), module(std::make_shared<Wide>()), model(module, mesh) {
    fsdp::ShardOptions options;
    options.alignment = 256;
    unit = model.fully_shard(module, options);
    fsdp::AdamWOptions adamw;
    adamw.moments = moments;
    optimizer = std::make_unique<fsdp::AdamW>(model, adamw);
  }

  double step(int number, double scale = 1) {
    const at::Generator random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(number % 4));
    const at::Tensor x = part_of(at::randn({12, 66}, random, at::kFloat), mesh.rank(), mesh.world_size());
    const at::Tensor loss = unit->run(x, [&](const at::Tensor& in) { return module->loss(in); });
    (loss * scale).backward();
    optimizer->step(1e-2);
    model.zero_grad();
    return mesh.control().all_reduce(loss.item<double>()) / mesh.world_size();
  }

  /// The values of all states of all parameters.
  std::map<std::string, at::Tensor> states() {
    std::map<std::string, at::Tensor> out;
    for (const auto& segment : unit->segments()) {
      for (const auto& [name, flat] : segment->states()) {
        const fsdp::StateForm& form = segment->form(name);
        const at::Tensor spread = segment->spread_state(name);
        const at::Tensor all = at::empty({spread.numel() * mesh.world_size()}, spread.options());
        mesh.shard().gather(all, spread);
        for (const auto& info : segment->layout().parameters())
          if (form.is_of(info))
            out[name + " " + info.name] = all.narrow(0, info.offset / form.block, form.values(info.numel)).clone();
      }
    }
    return out;
  }

  fsdp::DeviceMesh& mesh;
  std::shared_ptr<Wide> module;
  fsdp::ShardedModel model;
  std::shared_ptr<fsdp::Unit> unit;
  std::unique_ptr<fsdp::AdamW> optimizer;
};

void expect_same_bits(const std::map<std::string, at::Tensor>& got, const std::map<std::string, at::Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) EXPECT_TRUE(at::equal(got.at(name), value)) << name;
}

TEST(Moments, TrainAsThoseInFp32AtAnyWorldSize) {
  for (const int world_size : {1, 2, 3}) {
    run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Training fp32(mesh, Moments::kFp32), bf16(mesh, Moments::kBf16), int8(mesh, Moments::kInt8);
      double want = 0, first = 0, of_bf16 = 0, of_int8 = 0;
      for (int number = 0; number < 200; ++number) {
        want = fp32.step(number);
        of_bf16 = bf16.step(number);
        of_int8 = int8.step(number);
        if (number == 0) first = want;
      }
      EXPECT_LT(want, 0.05 * first) << "it must learn, or equality says little";
      EXPECT_NEAR(of_bf16, want, 0.01 * first);
      EXPECT_NEAR(of_int8, want, 0.02 * first);
      EXPECT_NE(of_bf16, want);
      EXPECT_NE(of_int8, want);
    });
  }
}

TEST(Moments, TakeTheBytesThatTheirFormSays) {
  run_thread_ranks(3, [](fsdp::DeviceMesh& mesh) {
    const auto bytes = [&](Moments moments) {
      return mesh.control().all_reduce(static_cast<double>(Training(mesh, moments).optimizer->state_bytes()));
    };
    const double padded = bytes(Moments::kFp32) / 8, matrices = 2 * 4950;
    EXPECT_EQ(bytes(Moments::kBf16), padded * 4);
    EXPECT_EQ(bytes(Moments::kInt8), matrices * 2 + 2 * 20 * 8 + 75 * 8) << "codes, scales, and the bias in fp32";
  });
}

TEST(Moments, StayWithTheirParametersWhenTheseAreFrozenAndUnfrozen) {
  for (const Moments kind : kSmall) {
    run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Training training(mesh, kind);
      training.step(0);
      const auto before = training.states();
      for (const bool trains : {false, true}) {
        training.module->up.set_requires_grad(trains);
        training.module->bias.set_requires_grad(trains);
        const at::NoGradGuard no_grad;
        training.unit->run(at::ones({1, 66}), [&](const at::Tensor& in) { return training.module->loss(in); });
        EXPECT_EQ(training.unit->segments().size(), trains ? 1u : 2u);
        expect_same_bits(training.states(), before);
      }
      EXPECT_LT(training.step(1), 1);
    });
  }
}

TEST_F(Checkpoint, OfSmallMomentsHoldsTheirBitsAtAnyWorldSize) {
  for (const Moments kind : kSmall) {
    std::filesystem::remove_all(options().folder);
    std::map<std::string, at::Tensor> states, weights;
    double next = 0;
    run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
      Training training(mesh, kind);
      for (int number = 0; number < 3; ++number) training.step(number);
      Checkpointer(training.model, *training.optimizer, options()).save(state_of(3));
      auto of_all = training.states(), full = training.model.gather_full_state();
      const double loss = training.step(3) + training.step(4);
      if (mesh.rank() == 0) states = of_all, weights = full, next = loss;
    });
    for (const int world_size : {1, 2, 3}) {
      run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
        Training training(mesh, kind);
        training.step(7);
        ASSERT_TRUE(Checkpointer(training.model, *training.optimizer, options()).load_latest());
        expect_same_bits(training.states(), states);
        expect_same_bits(training.model.gather_full_state(), weights);
        const double loss = training.step(3) + training.step(4);
        EXPECT_THAT(relative(loss, next), Le(world_size == 3 ? 0 : 1e-3))
            << "gradients of other world sizes round otherwise";
      });
    }
  }
}

TEST_F(Checkpoint, OfOtherMomentsIsAnErrorThatNamesTheirStates) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Training plain(mesh, Moments::kFp32), bf16(mesh, Moments::kBf16);
    Checkpointer(plain.model, *plain.optimizer, options()).save(state_of(1));
    EXPECT_THAT(
        error_of([&] { Checkpointer(bf16.model, *bf16.optimizer, options()).load_latest(); }),
        HasSubstr("was saved with the optimizer adamw of states exp_avg, exp_avg_sq, and this run has adamw for "
                  "its model of states exp_avg_bf16, exp_avg_sq_bf16"));
  });
}

TEST(Moments, OfInt8RefuseUnitsWhosePartsStartInsideABlock) {
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) {
    fsdp::AdamWOptions options;
    options.moments = Moments::kInt8;
    EXPECT_THAT(error_of([&] { Trainer(mesh, {}, 7, maker<fsdp::AdamW>(options)); }),
                HasSubstr("has one value for 256 elements, and parts of the unit start at multiples of 32; set "
                          "ShardOptions::alignment = 256"));
  });
}

}  // namespace
