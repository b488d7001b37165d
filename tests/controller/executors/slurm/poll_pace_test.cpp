#include "controller/executors/slurm/poller.h"

#include <gtest/gtest.h>

#include <functional>

namespace executors::on_slurm {
namespace {

using namespace std::chrono_literals;
using Need = PollPace::Need;

/// How often Slurm is asked in a minute where each listing takes `took` and `need` is the need at each moment.
int asked_in_a_minute(core::Millis took, const std::function<Need(core::Millis)>& need) {
  PollPace pace(1000ms, 100ms);
  int asked = 0;
  for (core::Millis now = 0ms; now < 60s; now += 50ms) {
    if (!pace.is_due(now, need(now))) continue;
    ++asked;
    pace.begin(now);
    pace.answered(now + took);
  }
  return asked;
}

int asked_in_a_minute(core::Millis took, Need need) {
  return asked_in_a_minute(took, [need](core::Millis) { return need; });
}

TEST(PollPace, AsksAsOftenAsTheAttemptsNeed) {
  EXPECT_EQ(asked_in_a_minute(20ms, Need::kIdle), 6);
  EXPECT_EQ(asked_in_a_minute(20ms, Need::kRest), 12);
  EXPECT_EQ(asked_in_a_minute(20ms, Need::kUsual), 60);
}

// Where something is urgent all the time, as while thousands of jobs end, that is one a second.
TEST(PollPace, NeverAsksMoreThanOnceAnIntervalForLong) {
  EXPECT_LE(asked_in_a_minute(1ms, Need::kUrgent), 60 + PollPace::kBurst);
}

TEST(PollPace, AsksAtOnceWhereSomethingIsUrgentNowAndThen) {
  PollPace pace(1000ms, 100ms);
  pace.begin(0ms);
  pace.answered(1ms);
  EXPECT_FALSE(pace.is_due(50ms, Need::kUrgent));
  for (auto now = 100ms; now < 100ms * PollPace::kBurst; now += 100ms) {
    EXPECT_TRUE(pace.is_due(now, Need::kUrgent)) << now.count();
    pace.begin(now);
    pace.answered(now + 1ms);
  }
  EXPECT_FALSE(pace.is_due(900ms, Need::kUrgent)) << "the burst is used up";
  EXPECT_TRUE(pace.is_due(1300ms, Need::kUrgent));
  EXPECT_TRUE(pace.is_due(1300ms, Need::kUsual));
}

TEST(PollPace, TakesNoMoreThanATwentiethOfTheTime) {
  EXPECT_EQ(asked_in_a_minute(250ms, Need::kUrgent), 12);
  EXPECT_EQ(asked_in_a_minute(400ms, Need::kRest), 8);
  EXPECT_EQ(asked_in_a_minute(30s, Need::kUsual), 3) << "though a cancel never waits longer than kLongest";
}

// A squeue that gave up after half a minute is no listing that takes half a minute.
TEST(PollPace, DoesNotWaitLongerForASlurmThatDoesNotAnswer) {
  PollPace pace(1000ms, 100ms);
  pace.begin(0ms);
  EXPECT_TRUE(pace.is_due(30s, Need::kUsual));
  pace.begin(30s);
  EXPECT_TRUE(pace.is_due(31s, Need::kUsual));
}

TEST(PollPace, SparesNothingWhileSqueueFailsAtOnce) {
  PollPace pace(1000ms, 100ms);
  pace.begin(0ms);
  pace.answered(400ms);
  EXPECT_FALSE(pace.is_due(7900ms, Need::kUsual));
  pace.begin(8000ms);
  pace.failed(8050ms);
  EXPECT_TRUE(pace.is_due(9000ms, Need::kUsual));
  pace.begin(9000ms);
  pace.answered(9400ms);
  pace.begin(17'000ms);
  pace.failed(19'000ms);
  EXPECT_FALSE(pace.is_due(24'900ms, Need::kUsual)) << "it gave up: Slurm is slow";
}

}  // namespace
}  // namespace executors::on_slurm
