#include "controller/common/hearing.h"
#include "tests/manual_clock.h"

#include <gtest/gtest.h>

namespace common {
namespace {

using namespace std::chrono_literals;

class ReadingTest : public ::testing::Test {
 protected:
  void attach() {
    reading_.attach([this](std::uint64_t n) { sent_.push_back(n); });
  }
  ManualClock clock_;
  Reading reading_{clock_};
  std::vector<std::uint64_t> sent_;
};

TEST_F(ReadingTest, WithoutAWayEverythingCountsAsRead) {
  reading_.ask();
  clock_.advance(10s);
  EXPECT_EQ(reading_.read_until(), clock_.monotonic());
  EXPECT_EQ(reading_.lag(), 0ms);
  EXPECT_FALSE(reading_.asked_ago());
}

TEST_F(ReadingTest, WhatCameBeforeAWordIsReadWhenTheWordIs) {
  attach();
  const auto asked = clock_.monotonic();
  reading_.ask();
  clock_.advance(300ms);
  EXPECT_EQ(reading_.read_until(), asked) << "nothing is known of what came later";
  EXPECT_EQ(reading_.lag(), 300ms) << "it waits still";
  reading_.arrived(1);
  clock_.advance(50ms);
  EXPECT_EQ(reading_.read_until(), asked);
  EXPECT_EQ(reading_.lag(), 300ms);
  reading_.ask();
  clock_.advance(10ms);
  reading_.arrived(2);
  EXPECT_EQ(reading_.read_until(), asked + 350ms);
  EXPECT_EQ(reading_.lag(), 10ms);
}

TEST_F(ReadingTest, OneWordIsUnderWayAtATime) {
  attach();
  for (int i = 0; i < 5; ++i) reading_.ask();
  EXPECT_EQ(sent_, std::vector<std::uint64_t>{1});
  reading_.arrived(7);  // not this one
  reading_.ask();
  EXPECT_EQ(sent_.size(), 1U);
  reading_.arrived(1);
  reading_.ask();
  EXPECT_EQ(sent_, (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(ReadingTest, ABrokenWayHoldsUpNoJudgement) {
  attach();
  reading_.ask();
  clock_.advance(5s);
  reading_.lost();
  EXPECT_EQ(reading_.read_until(), clock_.monotonic());
  EXPECT_EQ(reading_.lag(), 0ms);
  reading_.arrived(1);
  EXPECT_EQ(reading_.read_until(), clock_.monotonic()) << "too late to say anything";
  reading_.ask();
  EXPECT_EQ(sent_.size(), 2U) << "it is tried again";
  reading_.detach();
  clock_.advance(1s);
  EXPECT_EQ(reading_.read_until(), clock_.monotonic());
}

}  // namespace
}  // namespace common
