// Goal: who asks after a change of Slurm's sees that change, and nobody waits longer than he says.
// Method: a real watch with its thread, on a scheduler that answers when the test says, and a clock that tells when it
// is read: there the watch is inside a question.
#include "controller/partitions/partitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/controller/service/fake_executor.h"
#include "tests/manual_clock.h"

namespace partitions::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

constexpr auto kLong = 60s;  // no test should ever wait so

/// Answers each question when it is let, with what was true when it was asked.
class SlowScheduler : public service::testing::FakeExecutor {
 public:
  std::optional<executors::ClusterFacts> cluster() override {
    std::unique_lock lock(mutex_);
    auto facts = facts_;
    ++asked_;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kLong, [&] { return answered_ < let_; })) ADD_FAILURE() << "nobody lets it answer";
    ++answered_;
    return facts;
  }
  void add(const std::string& partition) {
    std::lock_guard lock(mutex_);
    facts_.partitions.emplace_back().name = partition;
  }
  void let(int answers) {
    std::lock_guard lock(mutex_);
    let_ += answers;
    changed_.notify_all();
  }
  int times_asked() {
    std::lock_guard lock(mutex_);
    return asked_;
  }
  bool is_asked(int times) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return asked_ >= times; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  executors::ClusterFacts facts_;
  int asked_ = 0, let_ = 0, answered_ = 0;
};

class CountingClock : public common::ManualClock {
 public:
  core::Millis monotonic() const override {
    std::lock_guard lock(mutex_);
    ++reads_;
    read_.notify_all();
    return common::ManualClock::monotonic();
  }
  /// Waits until it has been read so many times more than at the last call.
  bool is_read(int times) {
    std::unique_lock lock(mutex_);
    seen_ += times;
    return read_.wait_for(lock, kLong, [&] { return reads_ >= seen_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable read_;
  mutable int reads_ = 0;
  int seen_ = 0;
};

std::vector<std::string> names_of(const ClusterWatch::Facts& facts) {
  std::vector<std::string> names;
  for (const auto& partition : facts->partitions) names.push_back(partition.name);
  return names;
}

class Watching : public ::testing::Test {
 protected:
  Watching() {
    scheduler_.add("main");
    watch_.start();
  }
  ~Watching() override {
    scheduler_.let(100);
    watch_.close();
  }
  /// The first question, which nobody asks for, is answered, and the clock read once.
  bool knows() {
    scheduler_.let(1);
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!watch_.known()->known() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return watch_.known()->known() && clock_.is_read(1);
  }
  std::future<ClusterWatch::Facts> ask() {
    return std::async(std::launch::async, [this] { return watch_.ask(kLong, core::Millis(0)); });
  }

  SlowScheduler scheduler_;
  CountingClock clock_;
  std::atomic<bool> in_use_{false};
  ClusterWatch watch_{scheduler_, clock_, true, [this] { return in_use_.load(); }};
};

TEST_F(Watching, AnAnswerWhoseQuestionIsOlderThanThePersonsIsNotTaken) {
  ASSERT_TRUE(knows());
  auto first = ask();
  ASSERT_TRUE(clock_.is_read(2) && scheduler_.is_asked(2));  // by the person, and for Slurm's answer
  scheduler_.add("new");
  auto second = ask();
  ASSERT_TRUE(clock_.is_read(1));
  scheduler_.let(1);
  EXPECT_THAT(names_of(first.get()), ElementsAre("main"));
  ASSERT_TRUE(scheduler_.is_asked(3));
  scheduler_.let(1);
  EXPECT_THAT(names_of(second.get()), ElementsAre("main", "new"));
}

TEST_F(Watching, WithoutAnAnswerInTimeWhatIsKnownIsToldAsSuch) {
  ASSERT_TRUE(knows());
  const auto facts = watch_.ask(1ms, core::Millis(0));
  EXPECT_EQ(facts->unreachable, "no answer yet");
  EXPECT_THAT(names_of(facts), ElementsAre("main"));
  EXPECT_EQ(watch_.known()->unreachable, "") << "only who asked is told";
}

TEST_F(Watching, WhatIsFreshIsNotAskedForAgain) {
  ASSERT_TRUE(knows());
  EXPECT_EQ(watch_.ask(1ms)->unreachable, "");
  clock_.advance(ClusterWatch::kFresh);
  EXPECT_EQ(watch_.ask(1ms)->unreachable, "no answer yet");
}

TEST_F(Watching, FactsThatAreOldAreAskedForAnewWhenSomebodyLooks) {
  ASSERT_TRUE(knows());
  clock_.advance(ClusterWatch::kInterval);
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (scheduler_.times_asked() < 2 && std::chrono::steady_clock::now() < end) watch_.known();
  EXPECT_GE(scheduler_.times_asked(), 2);
}

TEST_F(Watching, FactsThatAreOldAreAskedForAnewOnceTheyAreInUse) {
  ASSERT_TRUE(knows());
  clock_.advance(ClusterWatch::kInterval);
  in_use_ = true;
  watch_.use();
  EXPECT_TRUE(scheduler_.is_asked(2));
}

}  // namespace
}  // namespace partitions::testing
