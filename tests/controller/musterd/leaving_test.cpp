// Goal: musterd leaves in bounded time, whatever it waits for, and says what that was.
// Method: the process that ends is gtest's child of a death test.
#include "controller/musterd/leaving.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace musterd {
namespace {

using namespace std::chrono_literals;

constexpr auto kForEver = 1h;

TEST(LeavingDeathTest, AStepThatDoesNotEndIsEndedAndNamed) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        Leaving leaving(50ms);
        leaving.begin();
        leaving.now("closing the port of gRPC");
        ::dup2(STDERR_FILENO, STDOUT_FILENO);  // the log of a test goes to stdout
        std::this_thread::sleep_for(kForEver);
      },
      ::testing::ExitedWithCode(kExitNotLeft), "not left after 0.05 s: it is closing the port of gRPC");
}

TEST(LeavingDeathTest, WhoLeavesInTimeIsNotEnded) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        {
          Leaving leaving(kForEver);
          leaving.begin();
          leaving.begin();
        }
        ::_exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(LeavingDeathTest, NothingIsBoundedBeforeItBegins) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        Leaving leaving(1ms);
        leaving.now("serving");
        std::this_thread::sleep_for(100ms);
        ::_exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace musterd
