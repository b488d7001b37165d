// Goal: beside its tensors a rank needs little memory: LibTorch, the connections, what the C library keeps.
// Method: real processes over sockets. Each prints the peaks of its tensors and of its resident memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <string>
#include <vector>

#include "tests/fsdp/temporary_folder.h"
#include "tests/places.h"

namespace {

using ::testing::Ge;
using ::testing::Le;

constexpr int kRanks = 2;

TEST(ResidentMemory, IsAtMost300MiBMoreThanTheTensors) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need memory of their own";
#endif
  for (const std::string dtype : {"fp32", "bf16"}) {
    const TemporaryFolder folder;
    std::vector<FILE*> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string command = std::string("exec '") + ::test::built_program("fsdp_resident_rank") + "' " +
                                  std::to_string(rank) + " " + std::to_string(kRanks) + " " + dtype + " '" +
                                  folder.path().native() + "'";
      ranks.push_back(::popen(command.c_str(), "re"));
      ASSERT_NE(ranks.back(), nullptr);
    }
    for (FILE* rank : ranks) {
      long long tensors = 0, resident = 0;
      EXPECT_EQ(::fscanf(rank, "%lld %lld", &tensors, &resident), 2) << dtype;
      EXPECT_EQ(::pclose(rank), 0) << dtype;
      const double mib = 1 << 20;
      EXPECT_THAT(static_cast<double>(tensors) / mib, Ge(350)) << dtype << ": shards, gradients and states alone";
      EXPECT_THAT(static_cast<double>(resident - tensors) / mib, Le(300)) << dtype;
      EXPECT_THAT(static_cast<double>(resident - tensors) / mib, Ge(0)) << dtype;
      std::printf("%s: %.0f MiB of tensors, %.0f MiB resident\n", dtype.c_str(), static_cast<double>(tensors) / mib,
                  static_cast<double>(resident) / mib);
    }
  }
}

}  // namespace
