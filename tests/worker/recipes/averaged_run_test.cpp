// Goal: with train.average_decay the average of the weights is evaluated and exported, and a run goes on with it.
// Method: the exports of trainings of 1, 2 and 3 steps are averaged by a formula.
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "base/usage_error.h"
#include "fsdp/files/safetensors.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kDecay = 0.6;
const std::string kAveraged = R"(,"average_decay":0.6)";

class AveragedRun : public ::testing::Test {
 protected:
  RunConfig run(const std::string& name, const std::string& train) {
    RunConfig config = run_of(folder_, R"(,"schedule":"constant","validation_every_steps":1,"batch_size":12)" + train,
                              "", name + "-checkpoints");
    config.exports.folder = (folder_ / name).native();
    return config;
  }
  std::vector<agent::rank::StepReport> made(const RunConfig& config, int ranks = 2, int save_at = 0,
                                            std::int64_t attempt = 1) {
    std::vector<Listener> listeners(static_cast<std::size_t>(ranks));
    listeners[0].save_at = save_at;
    train(config, listeners, attempt);
    return listeners[0].steps;
  }
  std::map<std::string, at::Tensor> exported(const std::string& name) {
    const fsdp::SafetensorsReader reader(folder_ / name / "model.safetensors");
    std::map<std::string, at::Tensor> out;
    for (const auto& [tensor, entry] : reader.entries()) out[tensor] = reader.tensor(tensor).to(at::kDouble);
    return out;
  }
  static std::vector<double> values(const std::vector<agent::rank::StepReport>& steps, const char* series) {
    std::vector<double> out;
    for (const auto& step : steps) out.push_back(value_of(step.values, series).value_or(-1));
    return out;
  }

  const TemporaryFolder folder_;
};

TEST_F(AveragedRun, ExportsAndEvaluatesTheAverage) {
  std::vector<std::map<std::string, at::Tensor>> weights;
  std::vector<agent::rank::StepReport> plain;
  for (const char* steps : {"1", "2", "3"}) {
    plain = made(run(steps, R"(,"steps":)" + std::string(steps)));
    weights.push_back(exported(steps));
  }
  const auto averaged = made(run("averaged", R"(,"steps":3)" + kAveraged));
  EXPECT_EQ(values(averaged, "loss"), values(plain, "loss")) << "it changes no step";
  const auto held_out = values(averaged, "validation/loss"), of_weights = values(plain, "validation/loss");
  EXPECT_NEAR(held_out[0], of_weights[0], 1e-6) << "the average of one value";
  EXPECT_GT(held_out[1], of_weights[1]) << "it lags behind";
  EXPECT_GT(held_out[2], of_weights[2]);
  const double all = 1 + kDecay + kDecay * kDecay;
  for (const auto& [name, value] : exported("averaged")) {
    const at::Tensor want =
        (weights[0].at(name) * kDecay * kDecay + weights[1].at(name) * kDecay + weights[2].at(name)) / all;
    EXPECT_TRUE(at::allclose(value, want, 1e-5, 1e-7)) << name;
  }
}

TEST_F(AveragedRun, GoesOnAtAnotherWorldSize) {
  const auto whole = made(run("whole", R"(,"steps":6)" + kAveraged));
  const RunConfig config = run("parts", R"(,"steps":6)" + kAveraged);
  auto steps = made(config, 2, 3);
  for (const auto& step : made(config, 3, 0, 2)) steps.push_back(step);
  EXPECT_THAT(values(steps, "validation/loss"),
              ::testing::Pointwise(::testing::DoubleNear(1e-4), values(whole, "validation/loss")));
  const auto want = exported("whole");
  ASSERT_EQ(exported("parts").size(), want.size());
  for (const auto& [name, value] : exported("parts"))
    EXPECT_TRUE(at::allclose(value, want.at(name), 1e-3, 1e-4)) << name;
}

TEST_F(AveragedRun, IsNotForARunThatBeganWithoutIt) {
  RunConfig without = run("first", R"(,"steps":2)");
  made(without, 1, 1);
  RunConfig with = run("first", R"(,"steps":2)" + kAveraged);
  std::vector<Listener> ranks(1);
  std::string why;
  ranks[0].on_failure = [&](const std::string& error) { why = error; };
  train(with, ranks, 2);
  EXPECT_THAT(why, HasSubstr("average"));
}

}  // namespace
}  // namespace worker::testing
