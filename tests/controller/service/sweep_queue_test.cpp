// Goal: a sweep's limit holds in a scheduler's queue, and all its jobs end, whatever people hold and release, whichever
// limits admins set meanwhile, whose answers get lost, and however often the controller restarts.
// Method: the real controller without threads on a queue that starts whatever it may; chance says who does what.
#include <gmock/gmock.h>

#include <map>
#include <random>
#include <set>
#include <utility>

#include "controller/service/bench.h"

namespace runtime::testing {
namespace {

constexpr int kJobs = 9;

class Story {
 public:
  Story(unsigned seed, std::uint32_t parallel) : random_(seed), parallel_(parallel) {
    bench.machine->queue = true;
    ClusterFacts facts;
    auto& partition = facts.partitions.emplace_back();
    partition.name = "main";
    partition.state = "UP";
    bench.machine->cluster = facts;
    auto request = sweep_request("a", kJobs, parallel);
    for (auto& spec : *request.mutable_specs()) {
      spec.mutable_slurm()->set_partition("main");
      spec.set_hold(below(4) == 0);
    }
    if (below(2) == 0) change_policy();
    EXPECT_TRUE(bench.controller().submit_sweep(request).ok());
    bench.tick();
  }

  /// Nobody does anything any more but the queue, and the one who releases what is held.
  void finish() {
    bench.machine->answers = true;
    bench.machine->takes_silently = false;
    bench.machine->launch_later.clear();
    for (core::JobId id = 1; id <= kJobs; ++id) bench.controller().release(id, "ben");
    for (int i = 0; i < 100 && !bench.store().load_open().empty(); ++i) queue_goes_on();
    EXPECT_TRUE(bench.store().load_open().empty());
    EXPECT_TRUE(bench.store().pending_actions().empty());
    for (const auto& [key, starts] : bench.machine->starts) EXPECT_EQ(starts, 1);
  }
  void something_happens() {
    const core::JobId id = below(kJobs) + 1;
    const auto what = below(8);
    if (what < 3) bench.controller().hold(id, "ben");
    if (what == 3 || what == 4) bench.controller().release(id, "ben");
    if (what == 5) change_policy();
    if (what == 6) bench.restart();
    bench.tick();
    take_holds();
    bench.machine->answers = below(6) > 0;
    bench.machine->takes_silently = below(5) == 0;
    bench.machine->launch_later = bench.machine->takes_silently || below(8) == 0 ? "no answer" : "";
    if (what > 3) queue_goes_on();
  }

 private:
  unsigned below(unsigned most) { return static_cast<unsigned>(random_() % most); }

  void change_policy() {
    if (has_policy_ && below(2) == 0) {
      muster::v1::RemovePartitionRequest request;
      request.set_name("main");
      EXPECT_TRUE(bench.controller().remove_partition(request).ok());
      has_policy_ = false;
      return;
    }
    muster::v1::SetPartitionRequest request;
    request.set_create(!has_policy_);
    request.mutable_policy()->set_name("main");
    request.mutable_policy()->set_max_running_jobs_per_user(1 + below(6));
    request.add_keys("max_running_jobs_per_user");
    EXPECT_TRUE(bench.controller().set_partition(request).ok());
    has_policy_ = true;
  }

  void take_holds() {
    for (const auto& [key, held] : std::exchange(bench.machine->holds, {})) {
      if (bench.machine->answers || below(2) == 0) held_[key] = held;  // done, though it did not say so
    }
  }

  /// Starts all that it may, its arrays' elements in any order, and ends one that runs; jobs with an even id fail
  /// twice.
  void queue_goes_on() {
    take_holds();
    std::vector<core::AttemptKey> waiting;
    for (const auto& [key, attempt] : bench.machine->attempts) {
      if (attempt.ranks.front().alive && !running_.contains(key) && !held_[key]) waiting.push_back(key);
    }
    std::shuffle(waiting.begin(), waiting.end(), random_);
    for (const auto& key : waiting) {
      const bool limited = Machine::is_limited_there(bench.machine->get(key).request);
      if (limited && elements_.size() >= parallel_) continue;
      running_.insert(key);
      bench.machine->beyond_hold.insert(key);
      if (limited) elements_.insert(key);
    }
    // Nobody is told of one whose launch was not answered yet.
    std::vector<core::AttemptKey> told;
    for (const auto& key : running_) {
      if (!bench.machine->get(key).told) continue;
      told.push_back(key);
      if (begun_.insert(key).second) bench.executor().begin(key, {"n1"});
    }
    bench.tick();
    EXPECT_LE(running_.size(), parallel_);
    if (!told.empty()) {
      const auto key = told[below(static_cast<unsigned>(told.size()))];
      running_.erase(key);
      elements_.erase(key);
      bench.executor().end(key, 0, {key.job % 2 == 0 && key.number < 3 ? 1 : 0, 0});
    }
    bench.pass(5s);
  }

  Bench bench;
  std::mt19937 random_;
  const std::uint32_t parallel_;
  bool has_policy_ = false;
  std::map<core::AttemptKey, bool> held_;
  std::set<core::AttemptKey> running_, elements_, begun_;
};

TEST(SweepQueue, AtMostSoManyRunAndAllEndWhateverHappens) {
  for (unsigned seed = 0; seed < 240 && !::testing::Test::HasFailure(); ++seed) {
    const auto parallel = seed % 4 + 1;
    SCOPED_TRACE("seed " + std::to_string(seed) + ", parallel " + std::to_string(parallel));
    Story story(seed, parallel);
    for (int i = 0; i < 40; ++i) story.something_happens();
    story.finish();
  }
}

}  // namespace
}  // namespace runtime::testing
