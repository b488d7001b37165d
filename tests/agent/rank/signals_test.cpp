#include "agent/rank/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "spec/exit_codes.h"

namespace agent::rank {
namespace {

class Signals : public ::testing::Test {
 protected:
  void SetUp() override {
    forget_stop_signals();
    install_stop_signals();
  }
  void TearDown() override {
    forget_stop_signals();
    for (const int number : {SIGTERM, SIGUSR2, SIGCONT, SIGPIPE}) ::signal(number, SIG_DFL);
  }
};

TEST_F(Signals, TermAsksForASave) {
  now_there_is_something_to_save();
  EXPECT_EQ(signalled_stop(), StopKind::kNone);
  ::raise(SIGTERM);
  EXPECT_EQ(signalled_stop(), StopKind::kSave);
}

TEST_F(Signals, Usr2AsksForASaveHoweverOften) {
  now_there_is_something_to_save();
  ::raise(SIGUSR2);
  ::raise(SIGUSR2);
  EXPECT_EQ(signalled_stop(), StopKind::kSave);
}

TEST_F(Signals, ContinueIsIgnored) {
  now_there_is_something_to_save();
  ::raise(SIGCONT);
  EXPECT_EQ(signalled_stop(), StopKind::kNone);
}

TEST_F(Signals, ASecondTermLeavesAtOnceWithTheRequeueCode) {
  now_there_is_something_to_save();
  EXPECT_EXIT(
      {
        ::raise(SIGTERM);
        // A SIGTERM is another request only when it comes half a second later. The feature under test is this delay.
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        ::raise(SIGTERM);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(spec::kExitRequeue), "");
}

// Slurm sends SIGTERM twice within milliseconds when it preempts without grace.
TEST_F(Signals, TwoTermsAtOnceAreOneAndStillLetTheSaveFinish) {
  now_there_is_something_to_save();
  ::raise(SIGTERM);
  ::raise(SIGTERM);
  EXPECT_EQ(signalled_stop(), StopKind::kSave);
}

TEST_F(Signals, ATermAfterUsr2StillLetsTheSaveFinish) {
  now_there_is_something_to_save();
  ::raise(SIGUSR2);
  ::raise(SIGTERM);
  EXPECT_EQ(signalled_stop(), StopKind::kSave);
}

TEST_F(Signals, BeforeThereIsAnythingToSaveTheFirstLeavesAtOnce) {
  EXPECT_EXIT(::raise(SIGTERM), ::testing::ExitedWithCode(spec::kExitRequeue), "");
}

}  // namespace
}  // namespace agent::rank
