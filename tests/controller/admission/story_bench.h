#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <random>

#include "tests/controller/service/bench.h"

namespace admission::testing {

/// Base of the stories of chance: the real controller without threads, chance, what goes wrong, and time that
/// passes.
class StoryBench {
 protected:
  explicit StoryBench(unsigned seed) : random_(seed) {}
  ~StoryBench() = default;

  unsigned below(unsigned most) { return static_cast<unsigned>(random_() % most); }
  bool one_of(unsigned many) { return below(many) == 0; }

  void pass(unsigned seconds) {
    for (; seconds > 0; --seconds) {
      bench_.clock.advance(std::chrono::seconds(1));
      bench_.tick();
    }
  }

  /// Disturbs the next tick. The controller dies at one of the next `steps` steps, in one of `deaths` cases.
  void disturb(unsigned deaths, unsigned steps) {
    auto& machine = *bench_.machine;
    machine.takes_silently = one_of(5);
    if (machine.takes_silently || one_of(8)) machine.launch_later = "no answer";
    if (one_of(12)) bench_.memory().fail_writes(store::Error(store::Error::Kind::kFull, "no space left"));
    if (one_of(deaths)) bench_.point.at = bench_.point.steps + static_cast<int>(below(steps));
  }
  virtual void calm() {
    bench_.machine->takes_silently = false;
    bench_.machine->launch_later.clear();
    bench_.memory().fail_writes(std::nullopt);
    bench_.point.at = -1;
  }
  virtual void restart() { bench_.restart(); }
  /// A controller that dies meanwhile is started again.
  void guarded(const std::function<void()>& what) {
    try {
      what();
    } catch (const service::testing::Crash&) {
      calm();
      // A job whose answer was lost is there all the same.
      jobs_ = std::max(jobs_, bench_.memory().next_job_id() - 1);
      restart();
    }
  }

  void release_all() {
    for (core::JobId id = 1; id <= jobs_; ++id) bench_.controller().release(id, "ben");
  }
  void expect_all_is_over() {
    EXPECT_TRUE(bench_.store().load_open().empty());
    EXPECT_TRUE(bench_.store().pending_actions().empty());
    for (const auto& [key, count] : bench_.machine->starts) EXPECT_LE(count, 1) << key.job << "." << key.number;
  }

  service::testing::Bench bench_;
  std::mt19937 random_;
  core::JobId jobs_ = 0;
};

}  // namespace admission::testing
