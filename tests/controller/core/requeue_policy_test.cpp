// Goal: how long a job waits before it comes back, and how often it may.
#include "controller/core/requeue_policy.h"

#include <gtest/gtest.h>

#include <limits>

namespace test {
namespace {

using namespace std::chrono_literals;

TEST(RequeuePolicy, TheBackoffDoublesUpToItsCap) {
  const core::RequeuePolicy policy;
  EXPECT_EQ(core::backoff(policy, 0), 0ms);
  EXPECT_EQ(core::backoff(policy, 1), 1s);
  EXPECT_EQ(core::backoff(policy, 2), 2s);
  EXPECT_EQ(core::backoff(policy, 9), 256s);
  EXPECT_EQ(core::backoff(policy, 10), 300s);
  EXPECT_EQ(core::backoff(policy, std::numeric_limits<std::uint32_t>::max()), 300s);
}

TEST(RequeuePolicy, OddSettingsNeitherOverflowNorGoBackInTime) {
  core::RequeuePolicy policy;
  policy.backoff_max = core::Millis::max();
  EXPECT_EQ(core::backoff(policy, 1000), core::Millis::max());
  policy.backoff_initial = 0ms;
  EXPECT_EQ(core::backoff(policy, std::numeric_limits<std::uint32_t>::max()), 0ms);
  policy.backoff_initial = -5s;
  EXPECT_EQ(core::backoff(policy, 3), 0ms);
  policy.backoff_initial = 10s;
  policy.backoff_max = 3s;
  EXPECT_EQ(core::backoff(policy, 1), 3s);
}

TEST(RequeuePolicy, EachCauseHasItsOwnBudget) {
  core::RequeuePolicy policy;
  policy.max_failed = 11, policy.max_rank_silent = 12, policy.max_rank_hung = 13, policy.max_preempted = 14;
  policy.max_timed_out = 15, policy.max_node_failed = 16, policy.max_out_of_memory = 17;
  policy.max_controller_lost = 18;
  EXPECT_EQ(core::budget(policy, core::Cause::kFailed), 11U);
  EXPECT_EQ(core::budget(policy, core::Cause::kRankSilent), 12U);
  EXPECT_EQ(core::budget(policy, core::Cause::kRankHung), 13U);
  EXPECT_EQ(core::budget(policy, core::Cause::kPreempted), 14U);
  EXPECT_EQ(core::budget(policy, core::Cause::kTimedOut), 15U);
  EXPECT_EQ(core::budget(policy, core::Cause::kNodeFailed), 16U);
  EXPECT_EQ(core::budget(policy, core::Cause::kOutOfMemory), 17U);
  EXPECT_EQ(core::budget(policy, core::Cause::kControllerLost), 18U);
}

TEST(RequeuePolicy, OnlyEndsThatAreNobodysWishHaveABudget) {
  const core::RequeuePolicy policy;
  EXPECT_EQ(core::budget(policy, core::Cause::kFailed), 3U);
  EXPECT_EQ(core::budget(policy, core::Cause::kRankSilent), 5U);
  EXPECT_EQ(core::budget(policy, core::Cause::kRankHung), 2U);
  EXPECT_EQ(core::budget(policy, core::Cause::kPreempted), 1000U);
  EXPECT_EQ(core::budget(policy, core::Cause::kTimedOut), 3U);
  EXPECT_EQ(core::budget(policy, core::Cause::kNodeFailed), 10U);
  EXPECT_EQ(core::budget(policy, core::Cause::kOutOfMemory), 1U);
  EXPECT_EQ(core::budget(policy, core::Cause::kControllerLost), 5U);
  for (const auto cause :
       {core::Cause::kNone, core::Cause::kCompleted, core::Cause::kCancelled, core::Cause::kRequeued}) {
    EXPECT_EQ(core::budget(policy, cause), std::nullopt);
  }
}

TEST(RequeuePolicy, HealthIsRunningTimeNotStartingTime) {
  const core::RequeuePolicy policy;
  core::Attempt attempt;
  attempt.started_at = core::Time{0ms};
  EXPECT_FALSE(core::ran_healthily(policy, attempt, core::Time{1h}));
  attempt.running_at = core::Time{50min};
  EXPECT_TRUE(core::ran_healthily(policy, attempt, core::Time{1h}));
  EXPECT_FALSE(core::ran_healthily(policy, attempt, core::Time{59min}));
  EXPECT_FALSE(core::ran_healthily(policy, attempt, core::Time{0ms})) << "a clock that was set back";
  core::RequeuePolicy never;
  never.healthy_after = 0ms;
  EXPECT_FALSE(core::ran_healthily(never, attempt, core::Time{100h})) << "else retries would have no bound";
}

}  // namespace
}  // namespace test
