// Goal: a request for a trace reaches every rank once, and is over when every rank has said so.
#include "controller/ranks/live_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ranks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

muster::v1::TraceReport report(std::uint64_t number, core::Step first, bool over = false,
                               const std::vector<core::Step>& written = {}) {
  muster::v1::TraceReport out;
  out.set_number(number);
  out.set_first_step(first);
  out.set_steps(1);
  for (const auto step : written) out.add_steps_written(step);
  out.set_over(over);
  return out;
}

const muster::v1::TraceReport kNothingYet;

TEST(StepTraces, TellEachRankUntilItHasSpoken) {
  StepTraces traces(2);
  EXPECT_FALSE(traces.said(0, &kNothingYet)) << "nothing is news yet";
  EXPECT_FALSE(traces.wish_for(0));
  traces.ask({5, 0, 1}, "ada");
  ASSERT_TRUE(traces.wish_for(0));
  EXPECT_EQ(traces.wish_for(0)->number, 5U);
  EXPECT_EQ(traces.wish_for(1)->number, 5U);
  const auto agreed = report(5, 12);
  EXPECT_TRUE(traces.said(0, &agreed));
  EXPECT_FALSE(traces.wish_for(0));
  EXPECT_TRUE(traces.wish_for(1)) << "its answer may be late";
  EXPECT_EQ(traces.find(5)->first, 12);
  EXPECT_FALSE(traces.wish_for(2)) << "a rank that is none";
  EXPECT_FALSE(traces.said(2, &agreed));
}

TEST(StepTraces, AreOverWhenAllRanksSaySo) {
  StepTraces traces(2);
  traces.ask({5, 0, 1}, "ada");
  const auto done = report(5, 12, true, {12});
  traces.said(0, &done);
  ASSERT_NE(traces.under_way(), nullptr);
  traces.said(1, &done);
  EXPECT_EQ(traces.under_way(), nullptr);
  EXPECT_THAT(traces.find(5)->ranks[1].steps_written, ElementsAre(12));
  traces.ask({5, 0, 1}, "ada");
  EXPECT_FALSE(traces.wish_for(0)) << "the same number again is the same request";
}

TEST(StepTraces, OfBeforeARestartAreLearnedFromTheRanks) {
  StepTraces traces(2);
  const auto agreed = report(9, 30);
  EXPECT_TRUE(traces.said(1, &agreed));
  ASSERT_NE(traces.under_way(), nullptr);
  EXPECT_EQ(traces.under_way()->wish.number, 9U);
  EXPECT_EQ(traces.under_way()->user, "");
  EXPECT_TRUE(traces.wish_for(0)) << "harmless: the ranks know this number";
}

TEST(StepTraces, AreNotWaitedForWhereARankIsAtAnotherOne) {
  StepTraces traces(1);
  const auto first = report(9, 30), second = report(4, 31);
  traces.said(0, &first);
  traces.ask({4, 0, 1}, "ada");
  traces.said(0, &second);
  EXPECT_TRUE(traces.find(9)->is_over());
  EXPECT_THAT(traces.find(9)->ranks[0].problem, HasSubstr("look into the folder"));
  EXPECT_EQ(traces.under_way()->wish.number, 4U);
}

TEST(StepTraces, AreOverForARankThatCannotRecord) {
  StepTraces traces(2);
  EXPECT_FALSE(traces.unable());
  traces.ask({5, 0, 1}, "ada");
  EXPECT_TRUE(traces.said(1, nullptr));
  ASSERT_TRUE(traces.unable());
  EXPECT_EQ(*traces.unable(), 1U);
  EXPECT_FALSE(traces.wish_for(1));
  EXPECT_THAT(traces.find(5)->ranks[1].problem, HasSubstr("muster-worker"));
  EXPECT_FALSE(traces.said(1, nullptr)) << "no news";
}

TEST(StepTraces, AreKeptInABoundedNumber) {
  StepTraces traces(1);
  for (std::uint64_t number = 1; number <= StepTraces::kKept + 1; ++number) {
    traces.ask({number, 0, 1}, "ada");
    const auto done = report(number, 12, true, {12});
    traces.said(0, &done);
  }
  EXPECT_EQ(traces.find(1), nullptr);
  EXPECT_NE(traces.find(2), nullptr);
}

}  // namespace
}  // namespace ranks
