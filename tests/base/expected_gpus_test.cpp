// Goal: a machine that is said to have GPUs never passes by skipping the tests that need them.
// Method: the rule of tests/expected_gpus.h by its numbers, and the macro that tests have in SetUp().
#include "tests/expected_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace {

using Kind = ::test::GpuVerdict::Kind;
using ::test::judge_gpus;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ExpectedGpus, WithoutTheVariableTooFewGpusAreASkip) {
  EXPECT_EQ(judge_gpus(1, 0, nullptr).kind, Kind::kSkipped);
  EXPECT_EQ(judge_gpus(1, 0, "").kind, Kind::kSkipped);
  EXPECT_EQ(judge_gpus(2, 1, nullptr).why, "1 GPU is seen, and this test needs 2");
  EXPECT_EQ(judge_gpus(1, 1, nullptr).kind, Kind::kRuns);
  EXPECT_EQ(judge_gpus(2, 8, nullptr).kind, Kind::kRuns);
}

TEST(ExpectedGpus, FewerThanExpectedAreAFailureThatNamesBothNumbers) {
  EXPECT_EQ(judge_gpus(1, 0, "8").kind, Kind::kFails);
  EXPECT_THAT(judge_gpus(2, 1, "8").why, AllOf(HasSubstr("1 GPU is seen"), HasSubstr("MUSTER_EXPECT_GPUS=8")));
  EXPECT_EQ(judge_gpus(1, 7, "8").kind, Kind::kFails) << "the test would run, but a GPU is missing";
}

TEST(ExpectedGpus, AMachineThatHasWhatIsExpectedSkipsWhatNeedsMore) {
  EXPECT_EQ(judge_gpus(2, 1, "1").kind, Kind::kSkipped);
  EXPECT_EQ(judge_gpus(1, 1, "1").kind, Kind::kRuns);
  EXPECT_EQ(judge_gpus(2, 8, "8").kind, Kind::kRuns);
}

TEST(ExpectedGpus, AValueThatIsNoNumberOfGpusIsRefused) {
  for (const char* value : {"0", "-1", "eight", "8 GPUs", "99999999999"}) {
    EXPECT_EQ(judge_gpus(1, 8, value).kind, Kind::kFails) << value;
    EXPECT_THAT(judge_gpus(1, 8, value).why, HasSubstr(value));
  }
}

void sees_one_gpu_of_two() {
  MUSTER_NEED_GPUS(2, 1);
  FAIL() << "goes on";
}

TEST(ExpectedGpus, TheMacroFailsWithThatText) {
  ::setenv("MUSTER_EXPECT_GPUS", "2", 1);
  EXPECT_FATAL_FAILURE(sees_one_gpu_of_two(), "1 GPU is seen, and MUSTER_EXPECT_GPUS=2 promises more");
  ::unsetenv("MUSTER_EXPECT_GPUS");
}

}  // namespace
