// Goal: train.cuda_graph is refused by name where a graph cannot hold a step, before the first one.
#include "worker/train/gpu.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "base/usage_error.h"
#include "tests/worker/points_recipe.h"
#include "tests/worker/trainer_ranks.h"

namespace worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const c10::Device kGpu{c10::kCUDA, 0};

TEST(CudaGraph, IsRefusedByKeyAndRemedy) {
  const TemporaryFolder folder;
  const auto why = [&](const std::string& train, const std::string& fsdp = "", c10::Device device = kGpu,
                       bool shares = false) {
    return why_no_cuda_graph(run_of(folder, R"(,"cuda_graph":true)" + train, fsdp), device, shares);
  };
  EXPECT_EQ(why(""), "");
  EXPECT_EQ(why(R"(,"optimizer":"sgd","momentum":0.9)"), "");
  EXPECT_EQ(why(R"(,"precision":"fp16")", R"(,"activation_checkpointing":"block")"), "");
  EXPECT_THAT(why("", "", c10::kCPU), AllOf(HasSubstr("on the CPU"), HasSubstr("resources.gpus_per_rank")));
  EXPECT_THAT(why("", "", kGpu, true), HasSubstr("ask for a GPU a rank"));
  EXPECT_THAT(why("", R"(,"offload":"cpu")"), HasSubstr("set fsdp.offload = \"none\""));
  EXPECT_THAT(why("", R"(,"activation_checkpointing":"block","activation_offload":true)"),
              HasSubstr("set fsdp.activation_offload = false"));
  EXPECT_THAT(why("", R"(,"tight":true)"), HasSubstr("set fsdp.tight = false"));
  EXPECT_THAT(why(R"(,"optimizer":"lion")"), HasSubstr("set train.optimizer = \"adamw\""));
  EXPECT_THAT(why(R"(,"optimizer":"sgd","momentum":0.9,"dampening":0.1)"), HasSubstr("set train.dampening = 0"));
  for (const char* optimizer : {"adafactor", "muon"})
    EXPECT_THAT(why(R"(,"optimizer":")" + std::string(optimizer) + "\""), HasSubstr("set train.optimizer = \"adamw\""));
  for (const char* moments : {"bf16", "int8"})
    EXPECT_THAT(why(R"(,"moments":")" + std::string(moments) + "\""), HasSubstr("set train.moments = \"fp32\""));
  EXPECT_THAT(why(R"(,"weight_decay_schedule":"cosine","final_weight_decay":0.1)"),
              HasSubstr("set train.weight_decay_schedule = \"constant\""));
}

TEST(CudaGraph, IsRefusedOnTheCpuBeforeTheFirstStep) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  std::string said;
  ranks[0].on_failure = [&](const std::string& text) { said = text; };
  train(run_of(folder, R"(,"cuda_graph":true,"steps":3)"), ranks);
  EXPECT_THAT(said, StartsWith("train.cuda_graph = true: this rank computes on the CPU"));
  EXPECT_TRUE(ranks[0].steps.empty());
}

}  // namespace
}  // namespace worker::testing
