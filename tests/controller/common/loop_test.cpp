// Goal: whoever has a loop gets its steps called when they are due, and none after the end.
// Method: real threads, which wait for each other; without threads, step() itself.
#include "controller/common/loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>

namespace {

using common::Loop;
using core::Millis;

TEST(Loop, AStepThatAsksForNoPauseIsCalledAgainAtOnce) {
  std::latch third(3);
  std::atomic<int> calls = 0;
  Loop loop("loop", "trouble", true, [&]() -> std::optional<Millis> {
    if (++calls <= 3) third.count_down();
    return calls < 3 ? std::optional(Millis(0)) : std::nullopt;
  });
  loop.start();
  third.wait();
  loop.close();
  EXPECT_EQ(calls, 3);
}

TEST(Loop, WakeEndsAPauseThatHasNoEnd) {
  std::latch first(1), second(1);
  std::atomic<int> calls = 0;
  Loop loop("loop", "trouble", true, [&]() -> std::optional<Millis> {
    (++calls == 1 ? first : second).count_down();
    return std::nullopt;
  });
  loop.start();
  first.wait();
  loop.wake();
  second.wait();
  loop.close();
  EXPECT_EQ(calls, 2);
}

TEST(Loop, WakeDuringAStepIsNotLost) {
  std::latch inside(1), woken(1), again(2);
  Loop loop("loop", "trouble", true, [&]() -> std::optional<Millis> {
    inside.count_down(inside.try_wait() ? 0 : 1);
    woken.wait();
    if (!again.try_wait()) again.count_down();
    return std::nullopt;
  });
  loop.start();
  inside.wait();
  loop.wake();
  woken.count_down();
  again.wait();
}

TEST(Loop, AStepThatThrowsIsCalledAgain) {
  std::latch second(1);
  std::atomic<int> calls = 0;
  Loop loop("loop", "trouble", true, [&]() -> std::optional<Millis> {
    if (++calls == 1) throw std::runtime_error("no");
    second.count_down();
    return std::nullopt;
  });
  loop.start();
  while (calls == 0) std::this_thread::yield();
  loop.wake();
  second.wait();
  loop.close();
  EXPECT_EQ(calls, 2);
}

TEST(Loop, CloseWaitsForTheStepUnderWayWhichMayAskWhetherToEnd) {
  std::latch inside(1);
  std::atomic<bool> left = false;
  Loop* self = nullptr;
  Loop loop("loop", "trouble", true, [&]() -> std::optional<Millis> {
    inside.count_down();
    while (!self->is_closed()) std::this_thread::yield();
    left = true;
    return Millis(0);
  });
  self = &loop;
  loop.start();
  inside.wait();
  loop.close();
  EXPECT_TRUE(left);
}

TEST(Loop, WithoutThreadsOnlyStepCallsIt) {
  int calls = 0;
  Loop loop("loop", "trouble", false, [&]() -> std::optional<Millis> {
    ++calls;
    return Millis(0);
  });
  loop.start();
  loop.wake();
  EXPECT_EQ(calls, 0);
  loop.step();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(loop.is_running());
}

TEST(Errands, OneThatThrowsIsNotDoneAndTheNextOneIs) {
  common::Errands errands(true);
  EXPECT_FALSE(errands.run([] { throw std::runtime_error("no"); }, Millis(60'000)));
  bool done = false;
  EXPECT_TRUE(errands.run([&] { done = true; }, Millis(60'000)));
  EXPECT_TRUE(done);
}

}  // namespace
