#include "controller/executors/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/controller/service/fake_executor.h"

namespace executors {
namespace {

using service::testing::FakeExecutor;
using ::testing::ElementsAre;

/// A fake that goes by another name.
class Named : public service::testing::FakeExecutor {
 public:
  explicit Named(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  void was_deaf() override { ++told_deaf; }
  int told_deaf = 0;

 private:
  std::string name_;
};

class Routing {
 public:
  Routing() {
    slurm.machine().queue = true;
    both.start([this](core::JobId job, core::EventBody) { told.push_back(job); });
  }
  static void launch(Executor& executor, const LaunchRequest& request) { executor.launcher(request).launch(request); }
  static LaunchRequest request(core::JobId job, const std::string& executor) {
    LaunchRequest r;
    r.key = {job, 1};
    r.executor = executor;
    return r;
  }

  Named local{"local"}, slurm{"slurm"};
  const std::unique_ptr<Executor> owned = make_routing_executor(local, slurm);
  Executor& both = *owned;
  std::vector<core::JobId> told;
};

// Some jobs of a sweep may be local: the others' script is Slurm's to judge, whoever comes first.
TEST(RoutingExecutor, ScriptsAreOfTheQueuesJobsAloneAndTheQueueJudgesThem) {
  Routing r;
  const std::vector requests{r.request(1, "local"), r.request(2, "slurm")};
  const auto scripts = r.both.scripts(requests);
  ASSERT_EQ(scripts.size(), 1U);
  ASSERT_EQ(r.slurm.machine().scripted.size(), 1U);
  EXPECT_EQ(r.slurm.machine().scripted[0].key.job, 2);
  r.slurm.machine().check.refusal = "no such node";
  EXPECT_EQ(r.both.check_script(scripts[0]).refusal, "no such node");
  EXPECT_TRUE(r.both.scripts({r.request(1, "local")}).empty());
}

TEST(RoutingExecutor, SendsEachJobWhereItsFileSays) {
  Routing r;
  r.launch(r.both, r.request(1, "auto"));
  r.launch(r.both, r.request(2, "slurm"));
  r.launch(r.both, r.request(3, "local"));
  EXPECT_TRUE(r.slurm.machine().has({1, 1}) && r.slurm.machine().has({2, 1}));
  EXPECT_TRUE(r.local.machine().has({3, 1}));
  EXPECT_EQ(r.slurm.machine().attempts.size() + r.local.machine().attempts.size(), 3U);
}

TEST(RoutingExecutor, LaterCallsGoToTheSame) {
  Routing r;
  r.launch(r.both, r.request(1, "auto"));
  r.launch(r.both, r.request(2, "local"));
  for (const core::JobId job : {1, 2}) {
    r.both.stop({job, 1}, {});
    r.both.hold({job, 1}, true);
    r.both.task({job, 1}, 0, {});
  }
  EXPECT_EQ(r.slurm.machine().stop_count({1, 1}), 1U);
  EXPECT_EQ(r.local.machine().stop_count({2, 1}), 1U);
  EXPECT_EQ(r.slurm.machine().holds.size(), 1U);
  EXPECT_EQ(r.slurm.machine().tasks.size(), 1U);
}

TEST(RoutingExecutor, ThatTheControllerWasDeafIsToldToBoth) {
  Routing r;
  r.both.was_deaf();
  EXPECT_EQ(r.local.told_deaf, 1);
  EXPECT_EQ(r.slurm.told_deaf, 1);
}

TEST(RoutingExecutor, ForgetsEndedAttemptsAloneHoweverManyCome) {
  Routing r;
  const auto few = make_routing_executor(r.local, r.slurm, 4);
  Executor& both = *few;
  std::set<core::JobId> open{1, 2};
  both.set_history([&](const core::AttemptKey& key) { return !open.contains(key.job); });
  r.slurm.machine().limit_refusal = "no";
  for (core::JobId job = 1; job <= 100; ++job) r.launch(both, r.request(job, job == 2 ? "local" : "slurm"));
  EXPECT_EQ(both.limit({1, 1}, core::Millis(1)).why, "no") << "the oldest still runs";
  EXPECT_NE(both.vouch({1, 1}, 0), Vouch::kUnknown);
  both.hold({2, 1}, true);
  EXPECT_EQ(r.local.machine().holds.size(), 1U);
  int remembered = 0;
  for (core::JobId job = 3; job <= 100; ++job) remembered += both.limit({job, 1}, core::Millis(1)).why.empty() ? 0 : 1;
  EXPECT_LE(remembered, 4);
}

// After a restart only the handle in the history says where it was.
TEST(RoutingExecutor, AdoptsByTheHandle) {
  Routing r;
  core::Attempt queued, here;
  queued.handle = "a word for people";
  queued.scheduler_job = core::SchedulerJob{12, std::nullopt};
  here.handle = "/data/jobs/2/attempt-1";
  r.both.adopt({1, 1}, queued);
  r.both.adopt({2, 1}, here);
  r.both.hold({1, 1}, true);
  r.both.hold({2, 1}, true);
  EXPECT_EQ(r.slurm.machine().holds.size(), 1U);
  EXPECT_EQ(r.local.machine().holds.size(), 1U);
}

TEST(RoutingExecutor, KnowsTheQueueOfSlurmAlone) {
  Routing r;
  EXPECT_TRUE(r.both.has_queue("auto"));
  EXPECT_FALSE(r.both.has_queue("local"));
  EXPECT_THAT(r.both.names(), ElementsAre("slurm", "local"));
}

}  // namespace
}  // namespace executors
