// Goal: steps that a device replays from a graph train the bits of steps that the host calls.
// Method: the real engine and its StepGraph on the pretend GPU (late_device.h), which records a step by the rules of
// CUDA's capture and replays it in drawn orders; a rank on the CPU, which calls each step, is the judge.
#include "fsdp/optim/step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "fsdp/engine/random_state.h"
#include "fsdp/optim/adafactor.h"
#include "fsdp/optim/optimizers.h"
#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/late_device.h"
#include "tests/fsdp/late_training.h"

namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 8, kWarmUp = 2, kSpike = 5, kMicroBatches = 3;

/// The rate of a step; each has its own.
float rate_of(int step) {
  return 1e-2F / static_cast<float>(1 + step);
}

/// Tokens of each micro-batch of a step, and last what the loss is multiplied by: one step has a gradient that is not
/// finite.
std::vector<at::Tensor> values_of(int step, const Case& how) {
  std::vector<at::Tensor> values;
  for (int i = 0; i < (how.accumulates ? kMicroBatches : 1); ++i)
    values.push_back(tokens_of(kMicroBatches * step + i).narrow(0, 0, 2).clone());
  values.push_back(at::scalar_tensor(step == kSpike ? std::numeric_limits<float>::infinity() : 1.0F, at::kFloat));
  return values;
}

/// Loss, norm and found_inf of a step. `lr` is a number, or a tensor of the device.
template <class Rate>
std::vector<at::Tensor> step_of(Sharded& rank, const Case& how, const std::vector<at::Tensor>& in, const Rate& lr) {
  at::Tensor sum;
  for (std::size_t i = 0; i + 1 < in.size(); ++i) {
    rank.sharded->set_requires_gradient_sync(how.sums || i + 2 == in.size());
    const at::Tensor loss = rank.accumulate(in[i], in.back());
    sum = sum.defined() ? sum + loss : loss;
  }
  const auto norm = rank.gradient_norm();
  if (rank.scaler) rank.scaler->update(norm.found_inf);
  rank.optimizer->step(lr, norm.grad_scale, norm.found_inf);
  rank.sharded->zero_grad();
  return {sum, norm.norm, norm.found_inf};
}

/// Changes nothing.
at::Tensor evaluated(Sharded& rank, at::Device device) {
  const at::NoGradGuard no_grad;
  return rank.model->forward(tokens_of(50).narrow(0, 0, 2).to(device));
}

/// Numbers that a step has told, before the next one overwrites them.
void keep(std::map<std::string, at::Tensor>& told, const std::vector<at::Tensor>& out, int step) {
  for (std::size_t i = 0; i < out.size(); ++i)
    told[std::to_string(step) + " number " + std::to_string(i)] =
        step == kSpike ? at::nan_to_num(out[i], -1) : out[i].detach().clone();  // NaN is not equal to itself
}

Result result_of(Sharded& rank, std::map<std::string, at::Tensor> told) {
  Result all = rank.sharded->gather_full_state();
  for (const auto& [name, value] : told) all[name] = value.to(at::kCPU);
  for (const auto& unit : rank.sharded->units())
    for (std::size_t i = 0; i < unit->segments().size(); ++i)
      for (const auto& [name, state] : unit->segments()[i]->states())
        all[unit->name() + " " + std::to_string(i) + " " + name] = state.to(at::kCPU);
  all["steps"] = at::tensor({rank.optimizer->steps()});
  return all;
}

constexpr int kEvaluates[] = {1, kWarmUp, 4, 6};

bool evaluates_after(int step) {
  return std::find(std::begin(kEvaluates), std::end(kEvaluates), step) != std::end(kEvaluates);
}

Result called(const Case& how) {
  at::set_num_threads(1);
  fsdp::DeviceMesh mesh = mesh_of(at::kCPU, how);
  Sharded rank(mesh, how);
  rank.model->passes = how.repeats ? 2 : 1;
  std::map<std::string, at::Tensor> told;
  for (int step = 0; step < kSteps; ++step) {
    keep(told, step_of(rank, how, values_of(step, how), static_cast<double>(rate_of(step))), step);
    if (evaluates_after(step)) told["evaluated " + std::to_string(step)] = evaluated(rank, at::kCPU);
  }
  return result_of(rank, told);
}

/// A rank on the pretend GPU with its graph.
struct Graphed {
  explicit Graphed(const Case& h) : how(h), mesh(mesh_of(late::kDevice, how)), rank(mesh, how) {
    rank.model->passes = how.repeats ? 2 : 1;
    graph.emplace(*rank.sharded, *rank.optimizer, late::make_graph(), kWarmUp);
  }

  const std::vector<at::Tensor>& make(int step) {
    const auto& in = graph->inputs(values_of(step, how));
    lr.fill_(rate_of(step));
    return graph->run([&] { return step_of(rank, how, in, lr); });
  }

  const Case how;
  fsdp::DeviceMesh mesh;
  Sharded rank;
  at::Tensor lr = at::zeros({}, at::TensorOptions(at::kFloat).device(late::kDevice));
  std::optional<fsdp::StepGraph> graph;
};

Result replayed(const Case& how) {
  Graphed rank(how);
  std::map<std::string, at::Tensor> told;
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(rank.graph->is_recorded(), step > kWarmUp);
    keep(told, rank.make(step), step);
    if (evaluates_after(step)) told["evaluated " + std::to_string(step)] = evaluated(rank.rank, late::kDevice);
  }
  EXPECT_GT(rank.graph->bytes(), 0);
  return result_of(rank.rank, told);
}

std::vector<Case> cases() {
  fsdp::ShardOptions plain, bf16, fp16, reduced, zero1, late, deep, parts, nf4;
  bf16.precision.param_dtype = reduced.precision.param_dtype = at::kBFloat16;
  reduced.precision.reduce_dtype = at::kBFloat16;
  fp16.precision.param_dtype = at::kHalf;
  zero1.reshard_after_forward = zero1.reshard_after_backward = false;
  late.prefetch_depth = 0;
  deep.prefetch_depth = 3;
  parts.reshard_to_ranks = 2;
  nf4 = bf16;
  nf4.frozen_format = [](const auto&) { return fsdp::FrozenFormat::kNf4; };
  const std::vector<fsdp::MeshAxis> replicas = {{"replicate", 2}, {"shard", 2}};
  return {
      {.name = "alone", .options = plain},
      {.name = "alone in bf16", .options = bf16},
      {.name = "full_shard", .rank = 1, .ranks = 2, .options = plain},
      {.name = "full_shard in bf16", .rank = 1, .ranks = 3, .options = bf16},
      {.name = "bf16 reductions", .rank = 0, .ranks = 2, .options = reduced, .accumulates = true},
      {.name = "scaled fp16", .rank = 0, .ranks = 2, .options = fp16, .scales = true},
      {.name = "zero1", .rank = 0, .ranks = 2, .options = zero1},
      {.name = "no prefetch", .rank = 1, .ranks = 2, .options = late},
      {.name = "deep prefetch", .rank = 0, .ranks = 2, .options = deep},
      {.name = "hybrid_shard", .rank = 3, .ranks = 4, .axes = replicas, .options = plain},
      {.name = "parts for neighbours", .rank = 1, .ranks = 4, .options = parts},
      {.name = "recompute", .rank = 1, .ranks = 2, .options = bf16, .recomputes = true},
      {.name = "accumulate", .rank = 0, .ranks = 2, .options = bf16, .accumulates = true},
      {.name = "sum", .rank = 1, .ranks = 2, .options = plain, .accumulates = true, .sums = true},
      {.name = "repeat", .rank = 0, .ranks = 2, .options = plain, .repeats = true},
      {.name = "frozen in nf4", .rank = 0, .ranks = 2, .options = nf4},
  };
}

class StepGraphs : public ::testing::TestWithParam<int> {};

TEST_P(StepGraphs, TrainTheBitsOfCalledStepsInEachOrder) {
  const Case how = cases()[static_cast<std::size_t>(GetParam())];
  SCOPED_TRACE(how.name);
  const Result want = called(how);
  const auto number = [&](int step, int i) { return want.at(std::to_string(step) + " number " + std::to_string(i)); };
  EXPECT_EQ(number(kSpike, 2).item<float>(), 1) << "a step must be skipped";
  EXPECT_EQ(number(kSpike - 1, 2).item<float>(), 0);
  EXPECT_FALSE(at::equal(number(0, 0), number(kSteps - 1, 0))) << "the model must change";
  std::int64_t overtakes = 0;
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    late::begin(seed);
    ASSERT_EQ(difference(replayed(how), want), "") << "seed " << seed;
    late::finish();
    EXPECT_EQ(late::counts().replays, kSteps - kWarmUp);
    overtakes += late::counts().overtakes;
  }
  if (how.ranks == 1) return;
  EXPECT_GT(overtakes, 50) << "streams must have overtaken one another, or equality says little";
}

INSTANTIATE_TEST_SUITE_P(Of, StepGraphs, ::testing::Range(0, static_cast<int>(cases().size())));

// Goal: a checkpoint that begins between two replays holds what the model was then.
using StepGraphCheckpoint = Checkpoint;
TEST_F(StepGraphCheckpoint, HoldsWhatTheModelWasBetweenTwoReplays) {
  Case how{.name = "alone in bf16"};
  how.options.precision.param_dtype = at::kBFloat16;
  constexpr int kSaved = 5;
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    late::begin(seed);
    fsdp::CheckpointOptions with = options();
    with.folder = folder_.path() / std::to_string(seed);
    {
      Graphed rank(how);
      fsdp::Checkpointer checkpointer(*rank.rank.sharded, *rank.rank.optimizer, with);
      for (int step = 0; step < kSaved; ++step) rank.make(step);
      fsdp::CheckpointState state;
      state.step = kSaved;
      checkpointer.begin_save(state);
      for (int step = kSaved; step < kSteps; ++step) rank.make(step);
      ASSERT_TRUE(checkpointer.wait());
    }
    late::finish();
    fsdp::DeviceMesh on_cpu = mesh_of(at::kCPU, how);
    Sharded straight(on_cpu, how), loaded(on_cpu, how);
    for (int step = 0; step < kSaved; ++step)
      step_of(straight, how, values_of(step, how), static_cast<double>(rate_of(step)));
    ASSERT_TRUE(fsdp::Checkpointer(*loaded.sharded, *loaded.optimizer, with).load_latest());
    ASSERT_EQ(difference(result_of(loaded, {}), result_of(straight, {})), "") << "seed " << seed;
  }
}

// Goal: the books stay true: a replay counts the collectives and bytes of a called step, but for those of control().
TEST(StepGraphBooks, AReplayCountsWhatACalledStepCounts) {
  late::begin(1);
  const Case how{.name = "full_shard", .rank = 1, .ranks = 2};
  Graphed rank(how);
  std::vector<fsdp::Traffic> made;
  std::vector<std::int64_t> of_control;
  for (int step = 0; step < kSteps; ++step) {
    const auto before = rank.mesh.shard().traffic();
    const auto control = rank.mesh.control().collectives();
    rank.make(step);
    made.push_back(rank.mesh.shard().traffic() - before);
    of_control.push_back(rank.mesh.control().collectives() - control);
  }
  ASSERT_GT(made[1].collectives, 6);
  for (int step = 2; step < kSteps; ++step) {
    EXPECT_EQ(made[static_cast<std::size_t>(step)].collectives, made[1].collectives) << step;
    EXPECT_EQ(made[static_cast<std::size_t>(step)].gathered_bytes, made[1].gathered_bytes) << step;
    EXPECT_EQ(made[static_cast<std::size_t>(step)].scattered_bytes, made[1].scattered_bytes) << step;
    EXPECT_EQ(made[static_cast<std::size_t>(step)].wire_bytes, made[1].wire_bytes) << step;
    EXPECT_EQ(of_control[static_cast<std::size_t>(step)], step <= kWarmUp ? of_control[1] : 0) << step;
  }
}

TEST(StepGraphBooks, ATraceShowsAReplayAsOneSpanAndARecordingAsNone) {
  late::begin(2);
  Graphed rank({.name = "full_shard", .rank = 1, .ranks = 2});
  for (int step = 0; step < kWarmUp; ++step) rank.make(step);
  for (int step = kWarmUp; step < kWarmUp + 2; ++step) {
    rank.mesh.tracer()->begin(late::kDevice);
    rank.make(step);
    const std::string trace = rank.mesh.tracer()->end(0);
    EXPECT_THAT(trace, HasSubstr("replay step graph")) << step;
    EXPECT_THAT(trace, ::testing::Not(HasSubstr("forward"))) << step;
  }
}

TEST(StepGraphRefuses, WhatItCannotHold) {
  late::begin(3);
  const auto error_with = [](const Case& how, at::Device device, int warm_up = kWarmUp,
                             const MakeOptimizer& make = maker<fsdp::AdamW>(fsdp::AdamWOptions())) {
    fsdp::DeviceMesh mesh = mesh_of(device, how);
    Sharded rank(mesh, how);
    rank.optimizer = nullptr;  // names of states would collide
    const auto optimizer = make(*rank.sharded);
    return error_of([&] { fsdp::StepGraph(*rank.sharded, *optimizer, late::make_graph(), warm_up); });
  };
  Case offload{.name = "offload"}, tight{.name = "tight"};
  offload.options.offload.to_cpu = true;
  tight.options.tight = true;
  EXPECT_THAT(error_with({}, at::kCPU), HasSubstr("step graph: the model is on the CPU"));
  EXPECT_THAT(error_with(offload, late::kDevice), HasSubstr("unit block0 is offloaded"));
  EXPECT_THAT(error_with(tight, late::kDevice), HasSubstr("unit block0 is tight"));
  EXPECT_THAT(error_with({}, late::kDevice, 1), HasSubstr("1 steps before the recording: want 2 or more"));
  EXPECT_THAT(error_with({}, late::kDevice, 2, maker<fsdp::Lion>(fsdp::LionOptions())),
              HasSubstr("optimizer lion reads found_inf on the host"));
  fsdp::AdamWOptions bf16;
  bf16.moments = fsdp::Moments::kBf16;
  EXPECT_THAT(error_with({}, late::kDevice, 2, maker<fsdp::AdamW>(bf16)),
              HasSubstr("optimizer adamw reads found_inf and step counts on the host"));
  EXPECT_THAT(error_with({}, late::kDevice, 2, maker<fsdp::Adafactor>(fsdp::AdafactorOptions())),
              HasSubstr("optimizer adafactor reads found_inf and norms of the weights on the host"));
  fsdp::SgdOptions dampened;
  dampened.momentum = 0.9;
  dampened.dampening = 0.1;
  EXPECT_THAT(error_with({}, late::kDevice, 2, maker<fsdp::Sgd>(dampened)),
              HasSubstr("optimizer sgd reads step counts on the host"));
  EXPECT_THAT(error_of([] { fsdp::make_device_graph(at::kCPU); }), HasSubstr("no graphs for device cpu"));
}

TEST(StepGraphRefuses, AnInputOfAnotherShape) {
  late::begin(4);
  Graphed rank({.name = "alone"});
  rank.make(0);
  auto values = values_of(1, rank.how);
  values[0] = values[0].narrow(0, 0, 1).clone();
  EXPECT_THAT(error_of([&] { rank.graph->inputs(values); }), HasSubstr("input 0 is [1, 6] of Long, and was [2, 6]"));
  values.pop_back();
  EXPECT_THAT(error_of([&] { rank.graph->inputs(values); }), HasSubstr("1 inputs, and the first step had 2"));
}

TEST(StepGraphRefuses, AStepThatTheHostWaitsIn) {
  late::begin(5);
  Graphed rank({.name = "alone"});
  for (int step = 0; step < kWarmUp; ++step) rank.make(step);
  const auto& in = rank.graph->inputs(values_of(kWarmUp, rank.how));
  const auto waits = [&] {
    const auto out = step_of(rank.rank, rank.how, in, rank.lr);
    static_cast<void>(out[0].item<float>());
    return out;
  };
  EXPECT_THAT(error_of([&] { rank.graph->run(waits); }),
              ::testing::AllOf(HasSubstr("the step cannot be recorded: late device: the host waits while a graph is"),
                               HasSubstr("call the step itself")));
  EXPECT_THAT(error_of([&] { rank.make(kWarmUp); }), HasSubstr("the recording has failed"));
}

TEST(StepGraphRefuses, AReplayAfterAChangeThatTheGraphDoesNotKnow) {
  late::begin(6);
  Graphed rank({.name = "full_shard", .rank = 1, .ranks = 2});
  for (int step = 0; step < kWarmUp + 2; ++step) rank.make(step);
  rank.rank.optimizer->set_weight_decay(0.3);
  EXPECT_THAT(error_of([&] { rank.make(kWarmUp + 2); }), HasSubstr("the weight decay is 0.3, and was 0.1"));
  rank.rank.optimizer->set_weight_decay(0.1);
  rank.rank.optimizer->set_rate(0, 0.5);
  EXPECT_THAT(error_of([&] { rank.make(kWarmUp + 2); }), HasSubstr("the scale of rate 0 is 0.5, and was 1 when"));
  rank.rank.optimizer->set_rate(0, 1);
  rank.make(kWarmUp + 2);
  rank.rank.model->blocks[1]->up.set_requires_grad(false);
  EXPECT_THAT(error_of([&] { rank.make(kWarmUp + 3); }), HasSubstr("a parameter was frozen or unfrozen"));
  evaluated(rank.rank, late::kDevice);  // moves the parameter
  EXPECT_THAT(error_of([&] { rank.make(kWarmUp + 3); }), HasSubstr("a parameter was frozen or unfrozen"));
}

TEST(StepGraphRefuses, RandomNumbersThatARecomputationWouldDrawAgain) {
  {
    const fsdp::RandomInGraph random(late::kDevice, /*draws=*/true);
    EXPECT_THAT(error_of([] { fsdp::must_restore_random(late::kDevice); }),
                HasSubstr("the step goes into a graph and draws random numbers"));
    EXPECT_TRUE(fsdp::must_restore_random(at::kCPU));
  }
  {
    const fsdp::RandomInGraph random(late::kDevice, /*draws=*/false);
    EXPECT_FALSE(fsdp::must_restore_random(late::kDevice));
  }
  EXPECT_TRUE(fsdp::must_restore_random(late::kDevice));
}

}  // namespace
