// Goal: what ranks use is shown as it was told last, with its age, and no longer than it is true.
#include <gmock/gmock.h>

#include <limits>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

class UseOfRanks : public ::testing::Test {
 protected:
  void tell_by_task(core::RankNumber rank, std::int64_t at_ms, double cores) {
    muster::v1::TaskRequest request;
    *request.mutable_key() = Bench::beat({job_, 1}, rank).key();
    request.set_state(muster::v1::PROCESS_RUNNING);
    auto& use = *request.mutable_use();
    use.set_at_ms(at_ms);
    use.set_cores(cores);
    use.set_memory_bytes(500);
    use.set_memory_peak_bytes(900);
    use.set_processes(3);
    use.set_gpu_percent(80);
    use.set_gpu_memory_bytes(7000);
    EXPECT_TRUE(bench_.controller().task(request, bench_.token({job_, 1})).ok());
  }
  muster::v1::Rank rank(int number) { return bench_.job(job_).ranks(number); }

  Bench bench_;
  core::JobId job_ = bench_.submit(command_request("a", 2));
};

TEST_F(UseOfRanks, IsWhatATaskHasToldLast) {
  EXPECT_FALSE(rank(0).has_use());
  tell_by_task(0, 1000, 1.5);
  const auto use = rank(0).use();
  EXPECT_EQ(use.cores(), 1.5);
  EXPECT_EQ(use.memory_bytes(), 500);
  EXPECT_EQ(use.memory_peak_bytes(), 900);
  EXPECT_EQ(use.processes(), 3U);
  EXPECT_EQ(use.gpu_percent(), 80);
  EXPECT_EQ(use.gpu_memory_bytes(), 7000);
  EXPECT_EQ(use.age_ms(), 0);
  EXPECT_FALSE(rank(1).has_use());
  EXPECT_FALSE(rank(0).has_last_heartbeat_ms()) << "the rank itself has said nothing";
  tell_by_task(0, 2000, 0.5);
  EXPECT_EQ(rank(0).use().cores(), 0.5);
}

TEST_F(UseOfRanks, AgesWhileTheSameSampleIsSentAgain) {
  tell_by_task(0, 1000, 1.5);
  bench_.pass(300ms);
  tell_by_task(0, 1000, 1.5);
  EXPECT_EQ(rank(0).use().age_ms(), 300);
  tell_by_task(0, 3000, 1.5);
  EXPECT_EQ(rank(0).use().age_ms(), 0);
}

TEST_F(UseOfRanks, ThatMakesNoSenseIsNotTaken) {
  tell_by_task(0, 1000, std::numeric_limits<double>::infinity());
  tell_by_task(0, 1000, -1);
  EXPECT_FALSE(rank(0).has_use());
}

TEST_F(UseOfRanks, LeavesItsPeakWhenTheRankHasEnded) {
  tell_by_task(1, 1000, 1.5);
  bench_.executor().end({job_, 1}, 1, {0, 0});
  bench_.tick();
  ASSERT_EQ(rank(1).state(), "exited");
  const auto use = rank(1).use();
  EXPECT_EQ(use.memory_peak_bytes(), 900);
  EXPECT_FALSE(use.has_cores() || use.has_memory_bytes() || use.has_gpu_percent() || use.has_age_ms());
}

TEST_F(UseOfRanks, IsInAListThatIsAskedForRanks) {
  tell_by_task(0, 1000, 1.5);
  muster::v1::ListRequest request;
  EXPECT_EQ(bench_.controller().list(request).jobs(0).ranks_size(), 0);
  request.set_with_ranks(true);
  const auto jobs = bench_.controller().list(request);
  ASSERT_EQ(jobs.jobs(0).ranks_size(), 2);
  EXPECT_EQ(jobs.jobs(0).ranks(0).use().cores(), 1.5);
}

TEST_F(UseOfRanks, WakesWhoeverWatchesTheJobOnlyWhenItIsNew) {
  tell_by_task(0, 1000, 1.5);
  const auto seen = bench_.controller().wait_change(job_, 0, 0ms);
  tell_by_task(0, 1000, 1.5);
  EXPECT_EQ(bench_.controller().wait_change(job_, seen, 0ms), seen);
  tell_by_task(0, 2000, 1.5);
  EXPECT_GT(bench_.controller().wait_change(job_, seen, 0ms), seen);
}

}  // namespace
}  // namespace service::testing
