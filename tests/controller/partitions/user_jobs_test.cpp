// Goal: what counts as a user's job in a partition, where histories and launches cross.
// Method: the counter alone.
#include "partitions/user_jobs.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace runtime {
namespace {

core::Job pending(core::JobId id) {
  core::Job job;
  job.id = id;
  job.user = "ann";
  return job;
}

TEST(UserJobs, OneThatIsCancelledOnItsWayKeepsItsPlaceUntilItsLaunchIsOver) {
  UserJobs jobs([](core::JobId) { return "main"; });
  for (const core::JobId id : {1, 2}) jobs.follow(pending(id));
  EXPECT_TRUE(jobs.enter(pending(1), 1));
  auto cancelled = pending(1);
  cancelled.state = core::JobState::kCancelled;
  jobs.follow(cancelled);
  EXPECT_FALSE(jobs.enter(pending(2), 1)) << "the queue may have it";
  EXPECT_EQ(jobs.open_in("main"), 1U);
  jobs.leave(1);
  EXPECT_TRUE(jobs.enter(pending(2), 1));
  EXPECT_EQ(jobs.of("main", "ann"), (UserJobs::Counts{1, 1}));
}

TEST(UserJobs, OneWhosePartitionCannotBeReadIsNotLetInAndHoldsNobodyUp) {
  UserJobs jobs([](core::JobId job) { return job == 1 ? throw std::runtime_error("disk") : std::string("main"); });
  for (const core::JobId id : {1, 2, 3}) jobs.follow(pending(id));
  EXPECT_THROW(jobs.enter(pending(1), 1), std::runtime_error);
  EXPECT_THROW(jobs.partition_of(1), std::runtime_error);
  EXPECT_TRUE(jobs.enter(pending(2), 1));
  EXPECT_FALSE(jobs.enter(pending(3), 1));
}

}  // namespace
}  // namespace runtime
