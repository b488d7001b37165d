// Goal: never more than a limit at once, everybody that may go on goes on, and nothing starts twice, whatever people
// hold, release, cancel and requeue, whichever limits admins set, whose answers get lost, which writes fail, and where
// the controller dies.
// Method: the real controller without threads over a model of a queue and of local processes. Chance says who does
// what. The model looks at every limit at the very moment at which an attempt gets there or is let go.
#include <gmock/gmock.h>

#include <map>
#include <set>
#include <utility>

#include "spec/jobfile/job_keys.h"
#include "tests/controller/admission/story_bench.h"

namespace admission::testing {
namespace {

class Story final : StoryBench {
 public:
  explicit Story(unsigned seed) : StoryBench(seed) {
    bench_.machine->queue = true;
    executors::ClusterFacts facts;
    auto& partition = facts.partitions.emplace_back();
    partition.name = "main";
    partition.state = "UP";
    bench_.machine->cluster = facts;
    bench_.machine->on_start = [this](const core::AttemptKey& key) { starts(key); };
    bench_.machine->on_hold = [this](const core::AttemptKey& key, bool held) { return hold(key, held); };
    bench_.machine->on_stop = [this](const core::AttemptKey& key) { stop(key); };
    if (one_of(2)) change_policy();
    policy_changes_ = one_of(3);
    for (unsigned sweeps = 1 + below(2); sweeps > 0; --sweeps) submit();
  }

  void something_happens() {
    answers_ = !one_of(4);
    disturb(6, 12);
    guarded([&] {
      ask();
      bench_.tick();
    });
    calm();
    if (one_of(2)) world_goes_on();
  }

  /// Nobody does anything any more but the world, and the one who releases what is held.
  void finish() {
    calm();
    release_all();
    for (int i = 0; i < 60 && !bench_.store().load_open().empty(); ++i) {
      tell_stopped();
      pass(11);  // longer than any backoff or pause
      expect_nobody_waits_in_vain();
      end_one();
    }
    pass(11);
    expect_all_is_over();
  }

 private:
  struct Sweep {
    std::uint32_t parallel = 0;
    std::string user;
    bool in_slurm = true;
  };
  enum class Place { kQueued, kHeld, kRunning };

  void submit() {
    Sweep sweep{below(4), one_of(2) ? "ann" : "bob", !one_of(4)};
    const int count = 2 + static_cast<int>(below(4));
    auto request = service::testing::sweep_request("sweep-" + std::to_string(jobs_), count, sweep.parallel);
    request.set_user(sweep.user);
    for (auto& spec : *request.mutable_specs()) {
      jobfile::set_slurm_text(spec, "partition", "main");
      spec.set_executor(sweep.in_slurm ? "slurm" : "local");
      spec.set_hold(one_of(5));
      spec.mutable_requeue()->set_max_failed(2);
      spec.mutable_requeue()->set_max_same_error(2);
    }
    EXPECT_TRUE(bench_.controller().submit_sweep(request).ok());
    for (int i = 0; i < count; ++i) sweeps_[++jobs_] = sweep;
    names_[jobs_ - count + 1] = jobs_;
  }

  void calm() override {
    answers_ = true;
    StoryBench::calm();
  }

  /// A policy whose answer was lost is in force all the same.
  void restart() override {
    StoryBench::restart();
    limit_.reset();
    const auto partitions = bench_.controller().list_partitions({});
    ASSERT_TRUE(partitions.ok());
    for (const auto& partition : partitions.value().partitions()) {
      const auto most = partition.policy().max_running_jobs_per_user();
      if (partition.has_policy() && most > 0) limit_ = most;
    }
  }

  void ask() {
    const core::JobId id = below(static_cast<unsigned>(jobs_)) + 1;
    auto& controller = bench_.controller();
    switch (below(11)) {
      case 0:
      case 1:
      case 2:
        controller.hold(id, "ben");
        break;
      case 3:
      case 4:
      case 5:
        controller.release(id, "ben");
        break;
      case 6:
        controller.cancel(id, "ben");
        break;
      case 7:
        controller.requeue(id, "ben");
        break;
      case 8:
        if (policy_changes_) change_policy();
        break;
      case 9:
        bench_.restart();
        break;
      default:
        break;
    }
    // Twice at once, so that one overtakes the other. The controller may be another by now.
    if (one_of(4)) bench_.controller().hold(id, "ben");
    if (one_of(4)) bench_.controller().release(id, "ben");
  }

  void change_policy() {
    if (limit_ && one_of(2)) {
      muster::v1::RemovePartitionRequest request;
      request.set_name("main");
      if (bench_.controller().remove_partition(request).ok()) limit_.reset();
      return;
    }
    muster::v1::SetPartitionRequest request;
    request.set_create(!limit_);
    request.mutable_policy()->set_name("main");
    const auto most = 1 + below(4);
    request.mutable_policy()->set_max_running_jobs_per_user(most);
    request.add_keys("max_running_jobs_per_user");
    if (bench_.controller().set_partition(request).ok()) limit_ = most;
  }

  // The world: attempts that are there, and where.

  void starts(const core::AttemptKey& key) {
    for (const auto& [other, place] : there_) EXPECT_NE(other.job, key.job) << "two attempts of one job at once";
    there_[key] = sweeps_[key.job].in_slurm ? Place::kQueued : Place::kRunning;
    expect_limits(key.job);
  }
  executors::HoldAnswer hold(const core::AttemptKey& key, bool held) {
    const auto found = there_.find(key);
    const bool can_be = found != there_.end() && found->second != Place::kRunning;
    // Done, though Slurm does not say so, or not.
    if (can_be && (answers_ || one_of(2))) {
      const bool was_held = found->second == Place::kHeld;
      found->second = held ? Place::kHeld : Place::kQueued;
      if (was_held && !held) expect_limits(key.job);
    }
    if (!answers_) return executors::HoldAnswer::kLater;
    return can_be ? executors::HoldAnswer::kDone : executors::HoldAnswer::kRefused;
  }
  void stop(const core::AttemptKey& key) {
    if (there_.erase(key) > 0) stopped_.push_back(key);
  }

  std::size_t at_once(const std::function<bool(core::JobId)>& counts) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        there_, [&](const auto& entry) { return entry.second != Place::kHeld && counts(entry.first.job); }));
  }
  std::size_t of_sweep(core::JobId job) const {
    const auto first = std::prev(names_.upper_bound(job));
    return at_once([&](core::JobId other) { return other >= first->first && other <= first->second; });
  }
  std::size_t of_user(core::JobId job) const {
    const auto& user = sweeps_.at(job).user;
    return at_once([&](core::JobId other) { return sweeps_.at(other).in_slurm && sweeps_.at(other).user == user; });
  }
  void expect_limits(core::JobId job) const {
    const auto& sweep = sweeps_.at(job);
    if (sweep.parallel > 0) {
      EXPECT_LE(of_sweep(job), sweep.parallel) << "of the sweep of job " << job;
    }
    // Those that have their slots keep them under a lower limit.
    if (limit_ && sweep.in_slurm && !policy_changes_) {
      EXPECT_LE(of_user(job), *limit_) << "of the user of job " << job;
    }
  }
  void expect_nobody_waits_in_vain() {
    for (const auto& open : bench_.memory().load_open()) {
      const auto job = open.id;
      const bool is_there = std::ranges::any_of(
          there_, [&](const auto& entry) { return entry.first.job == job && entry.second != Place::kHeld; });
      if (is_there) continue;
      const auto& sweep = sweeps_.at(job);
      const bool full = (sweep.parallel > 0 && of_sweep(job) >= sweep.parallel) ||
                        (limit_ && sweep.in_slurm && of_user(job) >= *limit_);
      EXPECT_TRUE(full) << "job " << job << " waits in vain";
    }
  }

  /// Tells what was stopped, starts some that wait, and ends one that runs. Jobs with an even id fail at first.
  void world_goes_on() {
    for (auto& [key, place] : there_) {
      if (place == Place::kQueued && one_of(2)) begin(key, place);
    }
    if (one_of(2)) end_one();
    guarded([&] { pass(below(3)); });
  }
  void tell_stopped() {
    for (const auto& key : std::exchange(stopped_, {})) bench_.executor().end(key, 0, {0, 15});
  }
  void begin(const core::AttemptKey& key, Place& place) {
    place = Place::kRunning;
    bench_.executor().begin(key, {"n1"});
  }
  void end_one() {
    tell_stopped();
    std::vector<core::AttemptKey> able;
    for (const auto& [key, place] : there_) {
      if (place != Place::kHeld) able.push_back(key);
    }
    if (able.empty()) return;
    const auto key = able[below(static_cast<unsigned>(able.size()))];
    auto& place = there_[key];
    if (place == Place::kQueued) begin(key, place);
    there_.erase(key);
    bench_.executor().end(key, 0, {key.job % 2 == 0 && key.number < 3 ? 1 : 0, 0});
  }

  std::map<core::JobId, Sweep> sweeps_;
  std::map<core::JobId, core::JobId> names_;  // each sweep's first job and its last
  std::optional<std::uint32_t> limit_;        // of running jobs of a user
  bool policy_changes_ = false;
  bool answers_ = true;
  std::map<core::AttemptKey, Place> there_;
  std::vector<core::AttemptKey> stopped_;
};

// Tests run beside each other: two in every run, and more with -L long.
constexpr unsigned kSeedsATest = 500;

class AdmissionStory : public ::testing::TestWithParam<unsigned> {};

INSTANTIATE_TEST_SUITE_P(Seeds, AdmissionStory, ::testing::Values(0U, 500U));
INSTANTIATE_TEST_SUITE_P(MoreSeeds, AdmissionStory, ::testing::Values(1000U, 1500U, 2000U, 2500U));

TEST_P(AdmissionStory, NeverMoreThanALimitAtOnceEverybodyGoesOnAndNothingTwice) {
  for (unsigned seed = GetParam(); seed < GetParam() + kSeedsATest && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Story story(seed);
    for (int i = 0; i < 15 && !::testing::Test::HasFailure(); ++i) story.something_happens();
    story.finish();
  }
}

}  // namespace
}  // namespace admission::testing
