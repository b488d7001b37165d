// Goal: rotary position embedding turns and scales as its papers and Hugging Face say. Method: small tables against the
// formulas.
#include "worker/models/layers/attention.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace worker {
namespace {

TEST(Rope, ScoresDependOnDistanceAlone) {
  const auto table = rope_table(0, 12, {.dim = 8}, at::kFloat, at::kCPU);
  at::manual_seed(3);
  const at::Tensor q = apply_rope(at::randn({1, 1, 1, 8}).expand({1, 12, 1, 8}), table).squeeze();
  const at::Tensor k = apply_rope(at::randn({1, 1, 1, 8}).expand({1, 12, 1, 8}), table).squeeze();
  const at::Tensor scores = q.matmul(k.t());
  for (int shift = 1; shift < 6; ++shift) {
    EXPECT_NEAR(scores[shift + 4][shift].item<double>(), scores[4][0].item<double>(), 1e-4);
  }
  EXPECT_NEAR(q[9].norm().item<double>(), q[0].norm().item<double>(), 1e-5);
}

TEST(Rope, TurnsTheTwoHalvesAgainstEachOther) {
  const auto table = rope_table(0, 3, {.dim = 4, .theta = 100}, at::kFloat, at::kCPU);
  at::Tensor x = at::zeros({1, 3, 1, 4});
  x.select(-1, 1).fill_(1.0);  // pairs are (0, 2) and (1, 3); the second rotates by position / sqrt(100)
  const at::Tensor y = apply_rope(x, table)[0][2][0];
  EXPECT_NEAR(y[1].item<double>(), std::cos(0.2), 1e-6);
  EXPECT_NEAR(y[3].item<double>(), std::sin(0.2), 1e-6);
  EXPECT_NEAR(y[0].item<double>(), 0, 1e-6);
}

/// The angle of each pair at position 1.
std::vector<double> frequencies_of(const RopeOptions& options) {
  const RopeTable table = rope_table(1, 1, options, at::kDouble, at::kCPU);
  const at::Tensor angle = at::atan2(table.sin[0], table.cos[0]);
  std::vector<double> out;
  for (std::int64_t i = 0; i < options.dim / 2; ++i) out.push_back(angle[i].item<double>());
  return out;
}

TEST(Rope, LinearScalingDividesEveryFrequency) {
  const auto plain = frequencies_of({.dim = 8}),
             scaled = frequencies_of({.dim = 8, .type = spec::RopeScaling::kLinear, .factor = 4});
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(scaled[i], plain[i] / 4, 1e-6 * plain[i]) << i;
}

TEST(Rope, Llama3ScalingStretchesLongWavelengthsAndKeepsShortOnes) {
  // Wavelengths 6.3, 62.8, 628 and 6283 against the bounds 64 / 4 = 16 and 64 / 1 = 64.
  const auto plain = frequencies_of({.dim = 8});
  const auto scaled =
      frequencies_of({.dim = 8, .type = spec::RopeScaling::kLlama3, .factor = 8, .original_positions = 64});
  EXPECT_NEAR(scaled[0], plain[0], 1e-6);
  const double ramp = (64 / (2 * std::numbers::pi / 0.1) - 1) / (4 - 1);
  EXPECT_NEAR(scaled[1], (1 - ramp) * 0.1 / 8 + ramp * 0.1, 1e-6);
  EXPECT_NEAR(scaled[2], plain[2] / 8, 1e-8);
  EXPECT_NEAR(scaled[3], plain[3] / 8, 1e-8);
  EXPECT_THROW(frequencies_of({.dim = 8, .type = spec::RopeScaling::kLlama3, .factor = 8}), c10::Error);
}

TEST(Rope, PositionsOfRowsGiveEachRowItsOwnAngles) {
  const RopeOptions options{.dim = 4};
  const at::Tensor positions = at::tensor({5, 6, 0, 1, 2, 3}, at::kLong).view({2, 3});
  const RopeTable table = rope_table(positions, options, at::kFloat);
  EXPECT_EQ(table.cos.sizes(), (at::IntArrayRef{2, 3, 4}));
  const at::Tensor x = at::randn({2, 3, 2, 4});
  const at::Tensor got = apply_rope(x, table);
  EXPECT_TRUE(at::allclose(
      got[0].narrow(0, 0, 2).unsqueeze(0),
      apply_rope(x[0].narrow(0, 0, 2).unsqueeze(0), rope_table(5, 2, options, at::kFloat, at::kCPU)), 1e-6, 1e-6));
  EXPECT_TRUE(at::allclose(got[1].unsqueeze(0),
                           apply_rope(x[1].unsqueeze(0), rope_table(1, 3, options, at::kFloat, at::kCPU)), 1e-6, 1e-6));
  EXPECT_THROW(apply_rope(at::randn({3, 3, 2, 4}), table), c10::Error);
}

TEST(Rope, OnlyTheFirstElementsOfAHeadTurn) {
  const RopeTable table = rope_table(0, 5, {.dim = 4}, at::kFloat, at::kCPU);
  const at::Tensor x = at::randn({2, 5, 3, 10});
  const at::Tensor got = apply_rope(x, table);
  EXPECT_TRUE(at::equal(got.narrow(-1, 4, 6), x.narrow(-1, 4, 6)));
  EXPECT_TRUE(at::equal(got.narrow(-1, 0, 4), apply_rope(x.narrow(-1, 0, 4), table)));
  EXPECT_THROW(apply_rope(at::randn({2, 5, 3, 2}), table), c10::Error);
}

}  // namespace
}  // namespace worker
