// Goal: each step tells what its tensors take, what was moved and what was waited for, and a step is recorded on
// request. Method: Trainers in this process, one thread per rank.
#include <gmock/gmock.h>

#include <ATen/ops/empty.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "fsdp/text/json.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"
#include "worker/train/step_trace.h"

namespace worker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

double value(const agent::rank::StepReport& report, std::string_view series) {
  const auto found = value_of(report.values, series);
  EXPECT_TRUE(found) << series;
  return found.value_or(-1);
}

TEST(Accounting, OfAStepIsToldInItsReport) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  RunConfig config = run_of(folder, R"(,"steps":4)");
  config.data_options.loader_threads = 0;  // what other threads allocate is not counted
  train(config, ranks);
  for (const auto& rank : ranks) {
    ASSERT_EQ(rank.steps.size(), 4U);
    for (const agent::rank::StepReport& step : rank.steps) {
      EXPECT_GT(value(step, "wait_ms"), 0);
      EXPECT_LT(value(step, "wait_ms"), step.step_ms);
      // Each unit is gathered for forward, and all but the root for backward. Besides, the ranks agree.
      const double gathered = value(step, "gathered_bytes"), scattered = value(step, "scattered_bytes");
      EXPECT_GT(gathered, scattered);
      EXPECT_LT(gathered, 2 * scattered);
      EXPECT_LT(gathered + scattered, static_cast<double>(step.bytes_communicated));
      EXPECT_LT(static_cast<double>(step.bytes_communicated), 1.05 * (gathered + scattered));
      // Parts of parameters are multiples of 32 elements. What the ranks agree on besides is not.
      EXPECT_EQ(std::fmod(gathered, 128), 0);
      EXPECT_GT(static_cast<double>(step.bytes_communicated) - gathered - scattered, 20) << "a byte a parameter";
    }
    const double peak = value(rank.steps[2], "tensor_peak_bytes");
    EXPECT_GT(peak, value(rank.steps[2], "scattered_bytes")) << "masters, gradients and states are as large, and more";
    EXPECT_EQ(peak, value(rank.steps[3], "tensor_peak_bytes"));
  }
}

// Such as a validation or a checkpoint between two steps.
TEST(Accounting, OfAStepLeavesOutWhatWasTakenBeforeIt) {
  constexpr std::int64_t kLarge = 64 << 20;
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  ranks[0].on_step = [&] {
    if (ranks[0].steps.size() == 2) at::empty({kLarge}, at::kByte);
  };
  RunConfig config = run_of(folder, R"(,"steps":3)");
  config.data_options.loader_threads = 0;  // what other threads allocate is not counted
  train(config, ranks);
  EXPECT_LT(value(ranks[0].steps[2], "tensor_peak_bytes"), kLarge);
  EXPECT_EQ(value(ranks[0].steps[2], "tensor_peak_bytes"), value(ranks[0].steps[1], "tensor_peak_bytes"));
}

TEST(Accounting, OfOneRankHasNoCommunication) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  train(run_of(folder, R"(,"steps":1)"), ranks);
  for (const char* series : {"wait_ms", "gathered_bytes", "scattered_bytes"})
    EXPECT_EQ(value_of(ranks[0].steps[0].values, series), std::nullopt) << series;
  EXPECT_GT(value(ranks[0].steps[0], "tensor_peak_bytes"), 0);
}

TEST(Accounting, OfTheRanksTensorsIsInTheLog) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  ::testing::internal::CaptureStdout();
  train(run_of(folder, R"(,"steps":2)"), ranks);
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("[rank 0] tensors: parameters "));
  EXPECT_EQ(log.find("tensors: "), log.rfind("tensors: ")) << "once";
}

TEST(Trace, OfTheStepsThatWereAskedForIsInAFileForEachRank) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  const RunConfig config = run_of(folder, R"(,"steps":5,"trace_step":2,"trace_steps":2)");
  train(config, ranks);
  const auto traces = StepTrace::file(config, 2, 0).parent_path();
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(traces)) names.insert(entry.path().filename());
  EXPECT_THAT(names, ElementsAre("step-2.rank0.json", "step-2.rank1.json", "step-3.rank0.json", "step-3.rank1.json"));
  std::ifstream in(StepTrace::file(config, 3, 1));
  std::ostringstream text;
  text << in.rdbuf();
  std::set<std::string> spans;
  const fsdp::Json trace = fsdp::Json::parse(text.str());
  for (const fsdp::Json& event : trace.at("traceEvents").as_array()) spans.insert(event.at("name").as_string());
  EXPECT_THAT(spans, IsSupersetOf({"step 3", "forward root", "backward root", "optimizer step"}));
}

TEST(Trace, OfAStepThatThrewEndsWithoutAFile) {
  const TemporaryFolder folder;
  const RunConfig config = run_of(folder, R"(,"steps":3,"trace_step":2)");
  fsdp::DeviceMesh mesh(0, 1, fsdp::MakeTransport());
  {
    const StepTrace trace(config, 2, mesh, /*is_requested=*/false);
    EXPECT_TRUE(mesh.tracer()->is_on());
  }
  EXPECT_FALSE(mesh.tracer()->is_on()) << "or later steps would be recorded until memory ends";
  EXPECT_FALSE(std::filesystem::exists(StepTrace::file(config, 2, 0)));
}

TEST(Trace, ThatCannotBeWrittenIsAWarning) {
  const TemporaryFolder folder;
  const RunConfig config = run_of(folder, R"(,"steps":3,"trace_step":2)");
  const auto traces = StepTrace::file(config, 2, 0).parent_path();
  std::filesystem::create_directories(traces.parent_path());
  std::ofstream(traces) << "a file in the place of the folder";
  std::vector<Listener> ranks(1);
  ::testing::internal::CaptureStderr();
  train(config, ranks);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("[rank 0] warning: no trace in " + StepTrace::file(config, 2, 0).native() + ": "));
  EXPECT_EQ(ranks[0].steps.size(), 3U) << "the training goes on";
}

TEST(Trace, IsNotWrittenUnlessAskedFor) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  const RunConfig config = run_of(folder, R"(,"steps":2,"trace_steps":3)");
  train(config, ranks);
  EXPECT_FALSE(std::filesystem::exists(StepTrace::file(config, 1, 0).parent_path()));
}

}  // namespace
}  // namespace worker::testing
