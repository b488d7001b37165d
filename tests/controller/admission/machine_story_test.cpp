// Goal: no GPU is given to two attempts, no core twice, none is lost, and every job runs in the end, whatever people
// submit, hold, release, cancel and requeue, whose answers get lost, which writes fail, where the controller dies, and
// by which names it knows the same GPUs when it is started again. Method: the real controller without threads over a
// model of a machine. A stopped attempt stays there for a while, as real ranks do. The model looks at every share at
// the very moment at which an attempt starts.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "tests/controller/admission/story_bench.h"

namespace admission::testing {
namespace {

constexpr std::uint32_t kGpus = 3, kCores = 6;

class MachineStory final : StoryBench {
 public:
  explicit MachineStory(unsigned seed) : StoryBench(seed) {
    auto& machine = *bench_.machine;
    name_gpus();
    machine.own.cores = kCores;
    machine.on_start = [this](const core::AttemptKey& key) { starts(key); };
    machine.on_stop = [this](const core::AttemptKey& key) {
      if (const auto found = there_.find(key); found != there_.end()) found->second.is_dying = true;
    };
    machine.on_is_there = [this](const core::AttemptKey& key) { return there_.contains(key); };
    bench_.restart();
    for (unsigned jobs = 2 + below(4); jobs > 0; --jobs) guarded([&] { submit(); });
  }

  void something_happens() {
    disturb(4, 14);
    guarded([&] {
      ask();
      bench_.tick();
    });
    calm();
    if (one_of(2)) end_one();
    guarded([&] { pass(below(3)); });
    if (one_of(3)) dying_end();
  }

  /// Nobody does anything any more but the world, and the one who releases what is held.
  void finish() {
    calm();
    release_all();
    for (int i = 0; i < 120 && !bench_.store().load_open().empty(); ++i) {
      dying_end();
      pass(11);  // longer than any backoff or pause
      expect_nobody_waits_in_vain();
      end_one();
    }
    dying_end();
    pass(11);
    restart();
    expect_all_is_over();
    const auto view = bench_.controller().machine();
    EXPECT_TRUE(view.holders().empty()) << view.ShortDebugString();
    EXPECT_TRUE(view.waiting().empty()) << view.ShortDebugString();
    for (const auto& gpu : view.gpus()) EXPECT_EQ(gpu.job_id(), 0) << "lost";
    expect_history_tells_the_same();
  }

 private:
  struct Need {
    std::uint32_t gpus = 0, cores = 0;
  };
  struct There {
    core::MachineShare share;
    bool is_dying = false;
  };

  static std::string uuid(std::uint32_t gpu) { return "GPU-" + std::string(1, static_cast<char>('a' + gpu)); }
  /// By UUIDs, as a driver lists them, by numbers or by UUIDs alone, in any order: as musterd may be started.
  void name_gpus() {
    auto& gpus = bench_.machine->own.gpus;
    gpus.clear();
    const auto naming = below(3);
    for (std::uint32_t i = 0; i < kGpus; ++i) {
      if (naming == 0) gpus.push_back({i, uuid(i), "", {i, uuid(i)}});
      if (naming == 1) gpus.push_back({i, std::to_string(i), "", {i}});
      if (naming == 2) gpus.push_back({i, uuid(i), "", {{}, uuid(i)}});
    }
    std::ranges::shuffle(gpus, random_);
  }
  void restart() override {
    if (one_of(2)) name_gpus();
    bench_.restart();
  }
  /// One name for each GPU, whatever it was called.
  static std::string true_name(const std::string& name) {
    return name.starts_with("GPU-") ? name : uuid(static_cast<std::uint32_t>(std::stoul(name)));
  }

  void submit() {
    const auto ranks = 1 + below(3);
    auto request = service::testing::command_request("job-" + std::to_string(jobs_), ranks);
    auto& spec = *request.mutable_spec();
    spec.set_hold(one_of(6));
    spec.mutable_requeue()->set_max_failed(2);
    spec.mutable_requeue()->set_max_same_error(2);
    auto& resources = *spec.mutable_resources();
    if (!one_of(5)) resources.set_gpus_per_rank(1);
    if (one_of(2)) resources.set_cpus_per_rank(1 + below(2));
    const auto outcome = bench_.controller().submit(request);
    if (!outcome.ok()) return;
    const auto id = outcome.value().job_id();
    jobs_ = std::max(jobs_, id);
    needs_[id] = {ranks * resources.gpus_per_rank(), ranks * resources.cpus_per_rank()};
  }

  void ask() {
    if (jobs_ == 0) return submit();
    const core::JobId id = below(static_cast<unsigned>(jobs_)) + 1;
    auto& controller = bench_.controller();
    switch (below(10)) {
      case 0:
      case 1:
        return submit();
      case 2:
        controller.hold(id, "ben");
        break;
      case 3:
      case 4:
        controller.release(id, "ben");
        break;
      case 5:
        controller.cancel(id, "ben");
        break;
      case 6:
        controller.requeue(id, "ben");
        break;
      case 7:
        restart();
        break;
      default:
        break;
    }
    if (one_of(5)) bench_.controller().cancel(id, "ben");
  }

  // The world: attempts that are there, and what they have.

  void starts(const core::AttemptKey& key) {
    for (const auto& [other, there] : there_) EXPECT_NE(other.job, key.job) << "two attempts of one job at once";
    const auto share = bench_.machine->get(key).request.share.value_or(core::MachineShare{});
    if (const auto need = needs_.find(key.job); need != needs_.end()) {
      EXPECT_EQ(share.gpus.size(), need->second.gpus) << "job " << key.job;
      EXPECT_EQ(share.cores, need->second.cores) << "job " << key.job;
    }
    auto cores = share.cores;
    std::set<std::string> taken;
    for (const auto& [other, there] : there_) {
      cores += there.share.cores;
      for (const auto& gpu : there.share.gpus) taken.insert(true_name(gpu));
    }
    for (const auto& gpu : share.gpus) {
      EXPECT_TRUE(taken.insert(true_name(gpu)).second) << gpu << " is given twice, now to job " << key.job;
    }
    EXPECT_LE(cores, kCores);
    there_[key] = {share};
  }
  void expect_nobody_waits_in_vain() {
    std::uint32_t gpus = kGpus, cores = kCores;
    for (const auto& [key, there] : there_) {
      gpus -= static_cast<std::uint32_t>(there.share.gpus.size());
      cores -= there.share.cores;
    }
    // The first in the queue waits only for what is not there.
    const auto view = bench_.controller().machine();
    if (view.waiting().empty() || std::ranges::any_of(view.gpus(), &muster::v1::MachineGpu::held_back)) return;
    const auto first = needs_.find(view.waiting(0));
    if (first == needs_.end()) return;
    EXPECT_TRUE(first->second.gpus > gpus || first->second.cores > cores)
        << "job " << first->first << " waits in vain: " << view.ShortDebugString();
  }
  void expect_history_tells_the_same() {
    for (core::JobId id = 1; id <= jobs_; ++id) {
      const auto job = bench_.memory().load(id);
      if (!job) continue;
      for (const auto& attempt : job->attempts) {
        const core::AttemptKey key{id, attempt.number};
        if (!bench_.machine->has(key)) continue;
        EXPECT_EQ(attempt.share, bench_.machine->get(key).request.share) << id << "." << attempt.number;
      }
    }
  }

  /// Jobs with an even id fail at first.
  void end_one() {
    std::vector<core::AttemptKey> able;
    for (const auto& [key, there] : there_) {
      if (!there.is_dying) able.push_back(key);
    }
    if (able.empty()) return;
    end(able[below(static_cast<unsigned>(able.size()))], {});
  }
  void dying_end() {
    std::vector<core::AttemptKey> dying;
    for (const auto& [key, there] : there_) {
      if (there.is_dying) dying.push_back(key);
    }
    for (const auto& key : dying) end(key, 15);
  }
  void end(const core::AttemptKey& key, std::optional<int> signal) {
    there_.erase(key);
    const int code = !signal && key.job % 2 == 0 && key.number < 3 ? 1 : 0;
    guarded([&] { bench_.executor().end_all(key, {code, signal.value_or(0)}); });
  }

  std::map<core::JobId, Need> needs_;
  std::map<core::AttemptKey, There> there_;
};

// Two tests in every run, and more with -L long.
constexpr unsigned kStoriesATest = 400;

class MachineStories : public ::testing::TestWithParam<unsigned> {};

INSTANTIATE_TEST_SUITE_P(Seeds, MachineStories, ::testing::Values(0U, 400U));
INSTANTIATE_TEST_SUITE_P(MoreSeeds, MachineStories, ::testing::Values(800U, 1200U, 1600U, 2000U));

TEST_P(MachineStories, NoGpuIsGivenTwiceNoneIsLostAndAllJobsRunInTheEnd) {
  for (unsigned seed = GetParam(); seed < GetParam() + kStoriesATest && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    MachineStory story(seed);
    for (int i = 0; i < 20 && !::testing::Test::HasFailure(); ++i) story.something_happens();
    story.finish();
  }
}

}  // namespace
}  // namespace admission::testing
