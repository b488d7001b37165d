#include "worker/train/step_measures.h"

#include <gmock/gmock.h>

namespace worker {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names_of(const StepMeasures& measures) {
  std::vector<std::string> names;
  for (const auto& value : measures.values()) names.push_back(value.series);
  return names;
}

TEST(StepMeasures, WhatWasNotMeasuredIsNoValue) {
  StepMeasures measures{.loss = 2.5, .tokens_per_s = 100, .learning_rate = 0.125, .grad_norm = 0.75};
  EXPECT_THAT(names_of(measures), ElementsAre("loss", "tokens_per_s", "learning_rate", "grad_norm"));
  EXPECT_EQ(value_of(measures.values(), "validation/loss"), std::nullopt);
  measures.evaluated = {{"validation/loss", 2.25}};
  EXPECT_THAT(names_of(measures), ElementsAre("loss", "validation/loss", "tokens_per_s", "learning_rate", "grad_norm"));
  measures.more = {{"dino_loss", 1.5}};
  EXPECT_EQ(names_of(measures)[1], "dino_loss");
  measures.more.clear();
  EXPECT_EQ(value_of(measures.values(), "validation/loss"), 2.25);
  EXPECT_EQ(value_of(measures.values(), "grad_norm"), 0.75);
  measures.loss_scale = 65536;
  EXPECT_EQ(value_of(measures.values(), "loss_scale"), 65536);
  measures.gpu_memory = GpuMemory{7, 9};
  EXPECT_EQ(value_of(measures.values(), "gpu_memory_peak"), 7);
  EXPECT_EQ(value_of(measures.values(), "gpu_memory_reserved"), 9);
  EXPECT_EQ(value_of(measures.values(), "wait_ms"), std::nullopt);
  measures.wait_ms = 1.5;
  measures.gathered_bytes = 48;
  measures.scattered_bytes = 24;
  measures.tensor_peak_bytes = 1024;
  EXPECT_EQ(value_of(measures.values(), "wait_ms"), 1.5);
  EXPECT_EQ(value_of(measures.values(), "gathered_bytes"), 48);
  EXPECT_EQ(value_of(measures.values(), "scattered_bytes"), 24);
  EXPECT_EQ(value_of(measures.values(), "tensor_peak_bytes"), 1024);
}

// People and tests read this line.
TEST(StepMeasures, TheLineOfAStepHasItsForm) {
  agent::rank::StepReport report;
  report.step = 3;
  report.step_ms = 12.25;
  report.memory_bytes = 512 << 20;
  StepMeasures measures{.loss = 2.5, .tokens_per_s = 1000.4, .learning_rate = 3e-4, .grad_norm = 0.75};
  EXPECT_EQ(line_of(report, measures, 10),
            "step 3/10 loss 2.500000 lr 3.000e-04 grad_norm 0.7500 tokens/s 1000 step_ms 12.2 memory_mib 512");
  measures.evaluated = {{"validation/loss", 2.25}};
  EXPECT_EQ(line_of(report, measures, 10),
            "step 3/10 loss 2.500000 validation_loss 2.250000 lr 3.000e-04 grad_norm 0.7500 tokens/s 1000 step_ms 12.2 "
            "memory_mib 512");
  measures.evaluated.push_back({"validation/accuracy", 0.5});
  measures.tokens_per_s.reset();
  measures.samples_per_s = 31.25;
  EXPECT_EQ(
      line_of(report, measures, 10),
      "step 3/10 loss 2.500000 validation_loss 2.250000 validation/accuracy 0.500000 lr 3.000e-04 grad_norm 0.7500 "
      "samples/s 31 step_ms 12.2 memory_mib 512");
}

TEST(StepMeasures, TheLineOfTensorsNamesEachKind) {
  const KeptTensors kept{.parameters = 8 << 20, .gradients = 4 << 20, .states = 16 << 20, .pool = 2 << 20};
  EXPECT_EQ(line_of(kept, std::nullopt),
            "tensors: parameters 8.0 MiB, gradients 4.0 MiB, optimizer 16.0 MiB, pool 2.0 MiB");
  EXPECT_EQ(line_of(kept, 40 << 20),
            "tensors: parameters 8.0 MiB, gradients 4.0 MiB, optimizer 16.0 MiB, pool 2.0 MiB, activations and others "
            "10.0 MiB; together at most 40.0 MiB");
}

}  // namespace
}  // namespace worker
