#include "runtime/local/oom_watch.h"

#include <gtest/gtest.h>

#include <fstream>

namespace runtime::local {

class OutOfMemory : public testing::Test {
 protected:
  void kernel_kills(int count) { std::ofstream(file_) << "pgfault 12\noom_kill " << count << "\nswap 3\n"; }
  const std::filesystem::path file_ =
      testing::TempDir() + "/oom." + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "." +
      std::to_string(static_cast<unsigned long>(std::chrono::steady_clock::now().time_since_epoch().count()));
  OomWatch::Time now_{};
  void TearDown() override { std::filesystem::remove(file_); }
};

TEST_F(OutOfMemory, AKillOfTheKernelsIsSeen) {
  kernel_kills(3);
  OomWatch watch(file_, now_);
  EXPECT_FALSE(watch.killed_lately(now_));
  kernel_kills(4);
  EXPECT_TRUE(watch.killed_lately(now_));
  EXPECT_TRUE(watch.killed_lately(now_)) << "it may have killed several";
}

TEST_F(OutOfMemory, AProcessThatTakesLongToDieIsStillCounted) {
  kernel_kills(0);
  OomWatch watch(file_, now_);
  kernel_kills(1);
  watch.tick(now_ += OomWatch::kWindow);
  EXPECT_TRUE(watch.killed_lately(now_ + OomWatch::kWindow / 2));
}

TEST_F(OutOfMemory, AKillOfLongAgoIsNotBlamed) {
  kernel_kills(0);
  OomWatch watch(file_, now_);
  kernel_kills(1);
  for (int window = 0; window < 3; ++window) watch.tick(now_ += OomWatch::kWindow);
  EXPECT_FALSE(watch.killed_lately(now_));
}

TEST_F(OutOfMemory, WithoutACounterNothingIsClaimed) {
  OomWatch watch(file_, now_);
  EXPECT_FALSE(watch.killed_lately(now_));
}

}  // namespace runtime::local
