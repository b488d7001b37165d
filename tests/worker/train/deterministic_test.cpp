// Goal: train.deterministic reaches LibTorch and cuBLAS, and changes no bit on the CPU, where training is deterministic
// without it. That bits are equal on a GPU is told by gpu_trainer_test.cpp.
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "base/usage_error.h"
#include "fsdp/engine/random_state.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::StrEq;

constexpr const char* kWorkspace = "CUBLAS_WORKSPACE_CONFIG";

/// Leaves the process as it was.
class Deterministic : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv(kWorkspace); }
  void TearDown() override {
    ::unsetenv(kWorkspace);
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
    at::globalContext().setDeterministicCuDNN(false);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
  }
};

/// Loss and norm of each step.
std::vector<double> trained(const TemporaryFolder& folder, const std::string& keys, const std::string& name) {
  std::vector<Listener> ranks(1);
  EXPECT_THAT(train(run_of(folder, R"(,"steps":4)" + keys, "", name), ranks),
              Each(Field(&Outcome::code, spec::kExitDone)));
  std::vector<double> out;
  for (const agent::rank::StepReport& step : ranks[0].steps)
    for (const char* series : {"loss", "grad_norm"}) out.push_back(value_of(step.values, series).value_or(-1));
  return out;
}

TEST_F(Deterministic, TheKeyReachesLibTorchAndCublas) {
  const TemporaryFolder folder;
  trained(folder, "", "without");
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  EXPECT_EQ(std::getenv(kWorkspace), nullptr);
  trained(folder, R"(,"deterministic":true)", "with");
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly()) << "attention is deterministic only then";
  EXPECT_TRUE(at::globalContext().deterministicCuDNN());
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  EXPECT_THAT(std::getenv(kWorkspace), StrEq(":4096:8"));
}

TEST_F(Deterministic, ARunOnTheCpuHasTheSameBitsWithAndWithoutTheKey) {
  const TemporaryFolder folder;
  const auto without = trained(folder, "", "without");
  EXPECT_EQ(without.size(), 8);
  EXPECT_EQ(trained(folder, R"(,"deterministic":true)", "with"), without);
}

TEST_F(Deterministic, AWorkspaceThatIsSetIsKeptOrRefused) {
  ::setenv(kWorkspace, ":16:8", 1);
  fsdp::compute_deterministically();
  EXPECT_THAT(std::getenv(kWorkspace), StrEq(":16:8"));
  ::setenv(kWorkspace, ":0:0", 1);
  EXPECT_THROW(fsdp::compute_deterministically(), c10::Error);
  const TemporaryFolder folder;
  const RunConfig config = run_of(folder, R"(,"steps":1,"deterministic":true)");
  const agent::rank::RankEnvironment environment;
  Listener listener;
  try {
    Trainer(config, environment, listener, make_recipe).run();
    ADD_FAILURE() << "no error";
  } catch (const base::UsageError& error) {  // starting again would not help
    EXPECT_THAT(error.what(), HasSubstr("train.deterministic: CUBLAS_WORKSPACE_CONFIG=:0:0"));
    EXPECT_THAT(error.what(), HasSubstr("unset the variable"));
  }
}

}  // namespace
}  // namespace worker::testing
