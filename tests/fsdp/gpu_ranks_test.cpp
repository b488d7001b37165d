// Goal: ranks on GPUs compute what one rank computes, whatever the strategy, and no work of one stream overtakes
// another. Method: real processes, which share a GPU where there are fewer GPUs than ranks. With "late", results of
// collectives come on another stream after a random time, so a missing wait between streams changes bits. LibTorch's
// deterministic algorithms make bits comparable. NCCL's ranks share a GPU, too: each says that it is a host of its own.
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/expected_gpus.h"
#include "tests/fsdp/temporary_folder.h"
#include "tests/places.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Lt;

class GpuRanks : public ::testing::Test {
 protected:
  void SetUp() override { MUSTER_NEED_GPUS(1, c10::cuda::device_count()); }
};

struct Ended {
  std::string printed;
  int status = 0;
};

/// The output of each rank, and how the rank ended.
std::vector<Ended> run(int ranks, const std::string& words) {
  const TemporaryFolder folder;
  std::vector<FILE*> running;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string command = "timeout 100 '" + ::test::built_program("fsdp_gpu_rank") + "' " + std::to_string(rank) +
                                " " + std::to_string(ranks) + " '" + (folder.path() / "store").native() + "' " + words;
    running.push_back(::popen(command.c_str(), "r"));
  }
  std::vector<Ended> ended;
  for (FILE* out : running) {
    ended.emplace_back();
    std::array<char, 4096> part;
    while (const std::size_t size = std::fread(part.data(), 1, part.size(), out))
      ended.back().printed.append(part.data(), size);
    ended.back().status = ::pclose(out);
  }
  return ended;
}

/// The output of all ranks. All must print the same.
std::string trained(int ranks, const std::string& words) {
  const auto all = run(ranks, words);
  for (const auto& [printed, status] : all) {
    EXPECT_EQ(status, 0) << words;
    EXPECT_EQ(printed, all.front().printed) << words << ": ranks differ";
  }
  EXPECT_THAT(all.front().printed, HasSubstr("embedding"));
  return all.front().printed;
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

TEST_F(GpuRanks, TwoOverNcclHaveTheBitsOfSocketsWithEachStrategy) {
  const std::string want = trained(2, "plain");  // a sum of two numbers has the same bits in any order
  for (const char* words :
       {"nccl", "nccl,one_communicator", "nccl,zero1", "nccl,no_prefetch", "nccl,deep_prefetch", "nccl,recompute"})
    EXPECT_EQ(trained(2, words), want) << words;
  EXPECT_EQ(trained(2, "nccl,bf16"), trained(2, "bf16"));
}

TEST_F(GpuRanks, FourOverNcclLearnWhatOneLearns) {
  const auto one = losses(trained(1, "unclipped"));
  for (const char* words : {"nccl,unclipped", "nccl,hybrid,unclipped"}) {
    const auto four = losses(trained(4, words));
    ASSERT_EQ(one.size(), four.size()) << words;
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 1e-5 * one[i]) << words << " step " << i;
  }
}

TEST_F(GpuRanks, AGraphHoldsTheCollectivesOfNccl) {
  for (const std::string words : {"", ",bf16", ",zero1", ",one_communicator"})
    EXPECT_EQ(trained(2, "nccl,graph" + words), trained(2, "nccl,called" + words)) << words;
}

/// The output of rank 0 when rank 1 fails in a step. Checks after how long all have ended.
std::string fault_of_rank_1(const std::string& words) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ranks = run(2, words);
  EXPECT_THAT(std::chrono::steady_clock::now() - begin, Lt(std::chrono::seconds(45))) << words;  // the timeout is 60 s
  EXPECT_NE(ranks[0].status, 0) << words;
  EXPECT_NE(ranks[1].status, 0) << words;
  EXPECT_EQ(losses(ranks[0].printed).size(), 4) << ranks[0].printed;
  return ranks[0].printed;
}

TEST_F(GpuRanks, ADeadRankEndsTheCollectivesOfNccl) {
  EXPECT_THAT(fault_of_rank_1("nccl,dies"), AllOf(HasSubstr("error: "), HasSubstr("rank 1 is gone")));
}

TEST_F(GpuRanks, AnotherCallEndsTheCollectivesOfNccl) {
  EXPECT_THAT(fault_of_rank_1("nccl,differs"), HasSubstr("the ranks differ in call "));
}

}  // namespace
