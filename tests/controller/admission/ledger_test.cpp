// Goal: a slot is taken as long as an attempt may be there, and no longer.
// Method: the ledger alone, told in orders that threads can bring about.
#include "controller/admission/ledger.h"

#include <gtest/gtest.h>

namespace admission {
namespace {

constexpr const char* kSweep = "sweep:a";

core::Job pending(core::JobId id) {
  core::Job job;
  job.id = id;
  job.user = "ann";
  job.sweep = {"a", 0, 1};
  return job;
}

core::Job queued(core::JobId id, core::AttemptNumber number = 1) {
  auto job = pending(id);
  core::Attempt attempt;
  attempt.number = number;
  attempt.state = core::AttemptState::kQueued;
  job.attempts.resize(number - 1);
  job.attempts.push_back(attempt);
  job.state = core::JobState::kQueued;
  return job;
}

core::Job ended(core::Job job) {
  job.state = core::JobState::kCancelled;
  if (!job.attempts.empty()) job.attempts.back().state = core::AttemptState::kEnded;
  return job;
}

TEST(LedgerTest, OneThatIsCancelledOnItsWayKeepsItsSlotUntilItsLaunchIsSettled) {
  Ledger ledger;
  ledger.follow(pending(1));
  ledger.enter(pending(1));
  ledger.follow(ended(pending(1)));
  EXPECT_EQ(ledger.count(kSweep), (Count{.taken = 1})) << "the queue may have it";
  ledger.settle(1);
  EXPECT_EQ(ledger.count(kSweep), Count{});
}

TEST(LedgerTest, AfterARestartOneThatWasCancelledOnItsWayHasItsSlotToo) {
  Ledger ledger;
  ledger.enter(ended(pending(1)));
  EXPECT_TRUE(ledger.has_slots(1));
  EXPECT_EQ(ledger.count(kSweep).taken, 1U);
  ledger.settle(1);
  EXPECT_FALSE(ledger.has_slots(1));
  EXPECT_EQ(ledger.count(kSweep), Count{});
}

TEST(LedgerTest, AnAttemptTakesOverTheSlotOfItsLaunchAndGivesItBackWhenItHasEnded) {
  Ledger ledger;
  ledger.enter(pending(1));
  ledger.follow(queued(1));
  EXPECT_EQ(ledger.count(kSweep), (Count{1, 1, 1})) << "once";
  ledger.settle(1);
  EXPECT_EQ(ledger.count(kSweep).taken, 1U);
  auto job = queued(1);
  job.attempts.back().state = core::AttemptState::kEnded;
  job.state = core::JobState::kWaiting;
  ledger.follow(job);
  EXPECT_EQ(ledger.count(kSweep), (Count{0, 1, 1}));
}

TEST(LedgerTest, WhatItsQueueHoldsHasNoSlotUntilItIsLetGoOrHasStarted) {
  Ledger ledger;
  ledger.follow(queued(1));
  ledger.park(queued(1));
  EXPECT_FALSE(ledger.has_slots(1));
  ledger.follow(queued(1));
  EXPECT_FALSE(ledger.has_slots(1)) << "nothing has changed";
  ledger.enter(queued(1));
  EXPECT_TRUE(ledger.has_slots(1));
  ledger.settle(1);
  EXPECT_TRUE(ledger.has_slots(1)) << "it is the attempt's";
  ledger.park(queued(1));
  auto running = queued(1);
  running.attempts.back().state = core::AttemptState::kRunning;
  ledger.follow(running);
  EXPECT_TRUE(ledger.has_slots(1)) << "somebody else has let it go";
  ledger.park(queued(1));
  EXPECT_TRUE(ledger.has_slots(1)) << "too late";
}

TEST(LedgerTest, AHoldOfAnOlderAttemptIsNoneOfTheNext) {
  Ledger ledger;
  ledger.follow(queued(1));
  ledger.park(queued(1));
  ledger.follow(queued(1, 2));
  EXPECT_TRUE(ledger.has_slots(1));
  ledger.park(queued(1));
  EXPECT_TRUE(ledger.has_slots(1));
}

TEST(LedgerTest, AJobCountsInItsPartitionOnceThatIsKnown) {
  Ledger ledger;
  for (const core::JobId id : {1, 2}) ledger.follow(queued(id));
  EXPECT_EQ(ledger.without_partition().size(), 2U);
  ledger.set_partition(1, "main");
  ledger.set_partition(2, "");
  EXPECT_TRUE(ledger.without_partition().empty());
  EXPECT_EQ(ledger.count(partition_key("main", "ann")), (Count{1, 1, 1}));
  EXPECT_EQ(ledger.open_below(partition_key("main", "")), 1U);
  ledger.follow(ended(queued(1)));
  EXPECT_EQ(ledger.open_below(partition_key("main", "")), 0U);
}

TEST(LedgerTest, TheFirstLimitThatIsFullIsTold) {
  Ledger ledger;
  const std::vector<Limit> limits{{kSweep, 2, "", ""}, {partition_key("main", "ann"), 1, "", ""}};
  EXPECT_EQ(ledger.full(limits), nullptr);
  ledger.enter(pending(1));
  ledger.set_partition(1, "main");
  EXPECT_EQ(ledger.full(limits), &limits[1]);
  ledger.enter(pending(2));
  EXPECT_EQ(ledger.full(limits), &limits[0]);
}

}  // namespace
}  // namespace admission
