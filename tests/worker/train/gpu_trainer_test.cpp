// Goal: a rank on a GPU never waits for it within a step, tells every step once, and loses nothing at a stop.
// Method: one rank of the real loop. LibTorch's guard against synchronisation makes each wait of the host an error.
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fsdp/engine/random_state.h"
#include "tests/expected_gpus.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/gpu.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;

class GpuTrainer : public ::testing::Test {
 protected:
  void SetUp() override {
    MUSTER_NEED_GPUS(1, c10::cuda::device_count());
    fsdp::compute_deterministically();  // before the first test computes; later tests train with the key
  }
};

void forbid_waits(bool forbid) {
  c10::cuda::warning_state().set_sync_debug_mode(forbid ? c10::cuda::SyncDebugMode::L_ERROR
                                                        : c10::cuda::SyncDebugMode::L_DISABLED);
}

double value(const agent::rank::StepReport& report, std::string_view series) {
  return value_of(report.values, series).value_or(-1);
}

TEST_F(GpuTrainer, TellsEveryStepOnceAndNeverWaitsWithinOne) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  ranks[0].on_step = [&] {
    const auto step = ranks[0].steps.size();
    if (step == 3) forbid_waits(true);
    if (step == 17) forbid_waits(false);  // the last step is saved
  };
  const auto outcomes = train(run_of(folder, R"(,"steps":20,"batch_size":8,"micro_batch_size":4)"), ranks);
  forbid_waits(false);
  EXPECT_THAT(outcomes, Each(Field(&Outcome::code, spec::kExitDone)));
  std::vector<std::int64_t> all(20);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(numbers(ranks[0].steps), all);
  EXPECT_THAT(ranks[0].saved, ElementsAre(20));
  EXPECT_LT(value(ranks[0].steps[19], "loss"), value(ranks[0].steps[0], "loss") - 1);
  for (const agent::rank::StepReport& step : ranks[0].steps) {
    EXPECT_GT(step.step_ms, 1) << "step " << step.step;
    EXPECT_GT(value(step, "grad_norm"), 0);
    EXPECT_GT(value(step, "gpu_memory_peak"), 100'000);
    EXPECT_GE(value(step, "gpu_memory_reserved"), value(step, "gpu_memory_peak") / 2);
  }
}

TEST_F(GpuTrainer, KnowsTheSizeOfTheGpusMemory) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(gpu_size(c10::Device(c10::kCUDA, 0)), static_cast<std::int64_t>(total));
}

TEST_F(GpuTrainer, TrainsInFp16WithAsynchronousSaves) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  RunConfig config = run_of(folder, R"(,"steps":20,"precision":"fp16")");
  config.checkpoint.every_steps = 5;
  config.checkpoint.asynchronous = true;
  const auto outcomes = train(config, ranks);
  EXPECT_THAT(outcomes, Each(Field(&Outcome::code, spec::kExitDone)));
  EXPECT_THAT(ranks[0].saved, ElementsAre(5, 10, 15, 20));
  EXPECT_LT(value(ranks[0].steps[19], "loss"), value(ranks[0].steps[0], "loss") - 0.5);
}

TEST_F(GpuTrainer, GoesOnAfterAStopWithTheSameBits) {
  const TemporaryFolder folder;
  const auto losses = [](const std::vector<agent::rank::StepReport>& steps) {
    std::vector<double> out;
    for (const auto& step : steps) out.push_back(value(step, "loss"));
    return out;
  };
  std::vector<Listener> whole(1), first(1), second(1);
  train(run_of(folder, R"(,"steps":9,"deterministic":true)", "", "whole"), whole);
  const RunConfig parts = run_of(folder, R"(,"steps":9,"deterministic":true)", "", "parts");
  first[0].save_at = 4;
  EXPECT_THAT(train(parts, first), Each(Field(&Outcome::code, spec::kExitRequeue)));
  EXPECT_THAT(numbers(first[0].steps), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(train(parts, second, 2), Each(Field(&Outcome::code, spec::kExitDone)));
  EXPECT_THAT(numbers(second[0].steps), ElementsAre(5, 6, 7, 8, 9));
  auto both = losses(first[0].steps);
  for (const double loss : losses(second[0].steps)) both.push_back(loss);
  EXPECT_EQ(both, losses(whole[0].steps));
}

TEST_F(GpuTrainer, ReplaysStepsWithTheBitsOfCalledOnes) {
  const TemporaryFolder folder;
  const auto told = [&](const char* graph, const char* checkpoints) {
    std::vector<Listener> ranks(1);
    RunConfig config = run_of(folder,
                              std::string(R"(,"steps":12,"batch_size":8,"micro_batch_size":4,"deterministic":true,)"
                                          R"("precision":"bf16","cuda_graph":)") +
                                  graph,
                              "", checkpoints);
    // The rate has few bits, because a graph takes it in fp32.
    config.train.learning_rate = config.train.min_learning_rate = 0.0009765625;
    config.train.schedule = spec::LearningRateSchedule::kConstant;
    config.train.warmup_steps = 0;
    config.train.validation_every_steps = 5;
    train(config, ranks);
    std::vector<double> out;
    for (const agent::rank::StepReport& step : ranks[0].steps) {
      out.push_back(value(step, "loss"));
      out.push_back(value(step, "grad_norm"));
      out.push_back(value(step, "validation/loss"));
    }
    return out;
  };
  const auto called = told("false", "called"), replayed = told("true", "replayed");
  EXPECT_EQ(called.size(), 36);
  EXPECT_EQ(replayed, called);
}

}  // namespace
}  // namespace worker::testing
