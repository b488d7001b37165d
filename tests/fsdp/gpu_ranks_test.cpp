// Goal: ranks on GPUs compute what one rank computes, whatever the strategy, and no work of one stream overtakes
// another. Method: real processes, which share a GPU where there are fewer GPUs than ranks. With "late", results of
// collectives come on another stream after a random time, so a missing wait between streams changes bits. LibTorch's
// deterministic algorithms make bits comparable.
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "temporary_folder.h"

namespace {

using ::testing::HasSubstr;

class GpuRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU on this machine";
  }
};

/// What all ranks print. All must print the same.
std::string trained(int ranks, const std::string& words) {
  const TemporaryFolder folder;
  std::vector<FILE*> running;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string command = "timeout 100 '" FSDP_GPU_RANK "' " + std::to_string(rank) + " " +
                                std::to_string(ranks) + " '" + (folder.path() / "store").native() + "' " + words;
    running.push_back(::popen(command.c_str(), "r"));
  }
  std::vector<std::string> printed;
  for (FILE* out : running) {
    printed.emplace_back();
    std::array<char, 4096> part;
    while (const std::size_t size = std::fread(part.data(), 1, part.size(), out))
      printed.back().append(part.data(), size);
    EXPECT_EQ(::pclose(out), 0) << words;
  }
  for (const auto& text : printed) EXPECT_EQ(text, printed.front()) << words << ": ranks differ";
  EXPECT_THAT(printed.front(), HasSubstr("embedding"));
  return printed.front();
}

/// The numbers after "loss".
std::vector<double> losses(const std::string& printed) {
  std::vector<double> out;
  for (std::size_t at = printed.find("loss "); at != std::string::npos; at = printed.find("loss ", at + 1))
    out.push_back(std::stod(printed.substr(at + 5)));
  return out;
}

TEST_F(GpuRanks, TwoHaveTheSameBitsWithEachStrategyAndHoweverLateResultsCome) {
  const std::string want = trained(2, "plain");
  for (const char* words : {"late", "zero1", "late,zero1", "late,no_prefetch", "late,deep_prefetch", "late,recompute"})
    EXPECT_EQ(trained(2, words), want) << words;
}

TEST_F(GpuRanks, TwoInBf16HaveTheSameBitsHoweverLateResultsCome) {
  const std::string want = trained(2, "bf16");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(trained(2, "late,bf16"), want);
}

TEST_F(GpuRanks, FourWithReplicasHaveTheSameBitsHoweverLateResultsCome) {
  const std::string want = trained(4, "unclipped");
  EXPECT_EQ(trained(4, "hybrid,unclipped"), want);
  EXPECT_EQ(trained(4, "late,hybrid,unclipped"), want);
}

TEST_F(GpuRanks, OneAndFourLearnTheSame) {
  const auto one = losses(trained(1, "plain")), four = losses(trained(4, "plain"));
  ASSERT_EQ(one.size(), four.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 1e-5 * one[i]) << "step " << i;
  EXPECT_LT(one.back(), one.front());
}

}  // namespace
