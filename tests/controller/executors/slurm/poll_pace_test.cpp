#include "executors/slurm/poll_pace.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace executors::on_slurm {
namespace {

using namespace std::chrono_literals;
using Need = PollPace::Need;

/// How often Slurm is asked in a minute where each listing takes `took` and `need` is the need at each moment.
int asked_in_a_minute(core::Millis took, const std::function<Need(core::Millis)>& need) {
  PollPace pace(1000ms);
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

// As while thousands of jobs are handed over, or end: something is looked for at every moment, after any rest.
TEST(PollPace, NeverAsksTwiceInAnInterval) {
  for (const auto rest : {0s, 3s, 60s}) {
    PollPace pace(1000ms);
    pace.begin(0ms);
    pace.answered(1ms);
    std::vector<core::Millis> asked;
    const core::Millis begin = rest;
    for (core::Millis now = begin; now < begin + 20s; now += 10ms) {
      if (!pace.is_due(now, Need::kUsual)) continue;
      asked.push_back(now);
      pace.begin(now);
      pace.answered(now + 1ms);
    }
    EXPECT_LE(asked.size(), 20U);
    for (std::size_t i = 1; i < asked.size(); ++i) EXPECT_GE(asked[i] - asked[i - 1], 1000ms) << asked[i].count();
  }
}

TEST(PollPace, AsksAtOnceAfterARest) {
  PollPace pace(1000ms);
  pace.begin(0ms);
  pace.answered(1ms);
  EXPECT_FALSE(pace.is_due(999ms, Need::kUsual));
  EXPECT_FALSE(pace.is_due(2500ms, Need::kRest));
  EXPECT_TRUE(pace.is_due(2500ms, Need::kUsual)) << "something has happened meanwhile";
}

TEST(PollPace, TakesNoMoreThanATwentiethOfTheTime) {
  EXPECT_EQ(asked_in_a_minute(250ms, Need::kUsual), 12);
  EXPECT_EQ(asked_in_a_minute(400ms, Need::kRest), 8);
  EXPECT_EQ(asked_in_a_minute(30s, Need::kUsual), 3) << "though a cancel never waits longer than kLongest";
}

// A squeue that gave up after half a minute is no listing that takes half a minute.
TEST(PollPace, DoesNotWaitLongerForASlurmThatDoesNotAnswer) {
  PollPace pace(1000ms);
  pace.begin(0ms);
  EXPECT_TRUE(pace.is_due(30s, Need::kUsual));
  pace.begin(30s);
  EXPECT_TRUE(pace.is_due(31s, Need::kUsual));
}

TEST(PollPace, SparesNothingWhileSqueueFailsAtOnce) {
  PollPace pace(1000ms);
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
