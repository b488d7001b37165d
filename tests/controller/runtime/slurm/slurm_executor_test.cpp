// Goal: what the executor asks of Slurm for all its attempts together, and what it tells of each.
// Method: the real executor with its threads on a Slurm in memory; a test waits for facts, never for time.
#include "runtime/slurm/slurm_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "bench.h"
#include "runtime/scheduler_handle.h"
#include "runtime/slurm/launcher.h"
#include "runtime/slurm/submission.h"
#include "slurm/fake_scheduler.h"
#include "slurm/follow.h"

namespace runtime::on_slurm {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::words;

/// An executor, its Slurm, and what it tells. What a test changes of Slurm it changes before start() or after stop().
class Executing {
 public:
  enum class Time {
    kReal,
    kHurried,  // passes while a test waits, faster than it really does
  };
  explicit Executing(Time time = Time::kReal) : hurried_(time == Time::kHurried) {
    options.root = folder.path();
    options.task_program = "/opt/muster-task";
    options.store_name = "s";
    options.poll_interval = 20ms;
    options.urgent_interval = 20ms;
    executor = std::make_unique<SlurmExecutor>(slurm, clock(), options);
    executor->set_history([this](const core::AttemptKey& key) {
      std::lock_guard lock(mutex_);
      return over_.contains(key);
    });
  }
  ~Executing() { stop(); }

  void start() {
    executor->start([this](core::JobId job, core::EventBody fact) {
      std::lock_guard lock(mutex_);
      told_[job].push_back(words(fact));
    });
  }
  void stop() { executor->shutdown(); }
  void set_over(const core::AttemptKey& key) {
    std::lock_guard lock(mutex_);
    over_.insert(key);
  }
  Clock& clock() { return hurried_ ? static_cast<Clock&>(hurried_clock_) : real_clock_; }
  std::string folder_of(const core::AttemptKey& key) const {
    return (folder.path() / "jobs" / std::to_string(key.job) / ("attempt-" + std::to_string(key.number))).string();
  }
  /// An attempt of one rank that an earlier controller handed over as this Slurm job, and saw start.
  void adopt(core::JobId job, const std::string& id) {
    const core::AttemptKey key{job, 1};
    SubmissionRecord record;
    record.comment = "muster:s:" + std::to_string(job) + ".1";
    record.id = ::slurm::parse_job_id(id);
    record.tried_at_ms = clock().wall().time_since_epoch().count();
    std::filesystem::create_directories(folder_of(key));
    write_record(folder_of(key), record);
    core::Attempt attempt;
    attempt.number = 1;
    attempt.handle = scheduler_handle(id);
    attempt.queued_at = attempt.started_at = clock().wall();
    attempt.ranks.resize(1);
    executor->adopt(key, attempt);
  }
  LaunchRequest request(core::JobId job, const std::string& sweep = {}) const {
    LaunchRequest r;
    r.key = {job, 1};
    r.job_name = "job";
    r.argv = {"/bin/true"};
    r.attempt_folder = folder_of(r.key);
    r.log_folder = r.attempt_folder + "/logs";
    r.working_folder = "/tmp";
    r.sweep = sweep;
    return r;
  }
  /// As accounting remembers it.
  ::slurm::PastRun run(const std::string& id, const std::string& state) {
    ::slurm::PastRun run;
    run.id = *::slurm::parse_job_id(id);
    run.state = ::slurm::parse_job_state(state);
    run.submitted = std::chrono::floor<std::chrono::seconds>(clock().wall());
    run.started = run.ended = run.submitted;
    return run;
  }
  void list(const std::string& id, const std::string& state, const std::string& comment, std::uint32_t restarts = 0) {
    ::slurm::ListedJob job;
    job.id = *::slurm::parse_job_id(id);
    job.state = ::slurm::parse_job_state(state);
    job.comment = comment;
    job.restarts = restarts;
    slurm.jobs[job.id] = job;
  }
  template <class Condition>
  bool eventually(Condition&& holds) {
    for (const auto end = std::chrono::steady_clock::now() + 60s; !holds();) {
      if (std::chrono::steady_clock::now() > end) return false;
      if (hurried_) hurried_clock_.advance(50ms);
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }
  /// The first thing told of a job.
  std::string first_word(core::JobId job) {
    std::string word = "nothing";
    eventually([&] {
      std::lock_guard lock(mutex_);
      if (told_.contains(job)) word = told_[job].front();
      return told_.contains(job);
    });
    return word;
  }

  runtime::testing::TempFolder folder;
  testing::FakeScheduler slurm;
  SlurmOptions options;
  std::unique_ptr<SlurmExecutor> executor;

 private:
  const bool hurried_;
  RealClock real_clock_;
  ManualClock hurried_clock_;
  std::mutex mutex_;
  std::map<core::JobId, std::vector<std::string>> told_;
  std::set<core::AttemptKey> over_;
};

TEST(SlurmExecutor, AsksAccountingOnceForAllWhoseEndNoListingTells) {
  Executing e;
  e.list("2", "PENDING", "muster:s:2.1", 1);
  e.list("9", "RUNNING", "muster:s:9.1");
  e.slurm.past = {e.run("1", "TIMEOUT"), e.run("2", "PREEMPTED"), e.run("3", "NODE_FAIL"), e.run("4_1", "FAILED")};
  for (const auto& [job, id] : std::map<core::JobId, std::string>{{1, "1"}, {2, "2"}, {3, "3"}, {4, "4_1"}, {9, "9"}}) {
    e.adopt(job, id);
  }
  e.start();
  EXPECT_EQ(e.first_word(1), "stopping timed_out");
  EXPECT_EQ(e.first_word(2), "stopping preempted save");
  EXPECT_EQ(e.first_word(3), "stopping node_failed");
  EXPECT_EQ(e.first_word(4), "gone failed");
  e.stop();
  EXPECT_THAT(e.slurm.calls_to_history, ElementsAre(ElementsAre(1U, 2U, 3U, 4U)));
}

// slurmctld gave 5 to another after it had lost ours; 6 was used a year ago, 7 is used again; 8 says whose it is.
TEST(SlurmExecutor, WhatAccountingSaysOfAnothersJobIsNotTakenForOurs) {
  Executing e(Executing::Time::kHurried);
  e.list("5", "RUNNING", "a stranger's");
  auto old = e.run("6", "TIMEOUT"), later = e.run("7", "TIMEOUT"), another = e.run("8", "TIMEOUT");
  *old.submitted -= std::chrono::hours(24 * 365);
  *later.submitted += std::chrono::hours(1);
  another.comment = "muster:s:80.1";
  e.slurm.past = {e.run("5", "TIMEOUT"), old, later, another};
  for (const auto* id : {"5", "6", "7", "8"}) e.adopt(std::stoi(id), id);
  e.start();
  for (const core::JobId job : {5, 6, 7, 8}) EXPECT_EQ(e.first_word(job), "gone controller_lost") << job;
  e.stop();
  for (const auto& ids : e.slurm.calls_to_history) EXPECT_THAT(ids, Each(::testing::Ne(5U)));
}

TEST(SlurmExecutor, WithoutAccountingOrWithOneThatIsAwayItConcludesAllTheSame) {
  for (const bool answers : {true, false}) {
    Executing e(Executing::Time::kHurried);
    e.slurm.accounting_answers = answers;
    e.list("2", "PENDING", "muster:s:2.1", 1);
    e.adopt(1, "1");
    e.adopt(2, "2");
    e.start();
    EXPECT_EQ(e.first_word(1), "gone controller_lost");
    EXPECT_EQ(e.first_word(2), "stopping requeued save");
  }
}

// The controller died between sbatch and its own record, and came back to find that people had cancelled.
TEST(SlurmExecutor, ElementsOfAnArrayWhoseAttemptsAreOverAreCancelledAndNoOthers) {
  Executing e;
  std::vector<LaunchRequest> sweep;
  for (const core::JobId job : {11, 12, 13, 14}) sweep.push_back(e.request(job, "s11"));
  EXPECT_EQ(Launcher(e.slurm, e.clock(), e.options).launch_all(sweep).size(), 4U);
  e.slurm.jobs[{1, 3}].state.state = ::slurm::JobState::kCompleted;
  e.list("7_0", "PENDING", "muster:t:set.11.1");
  e.list("8_9", "PENDING", "muster:s:set.11.1");
  for (const core::JobId job : {11, 13, 14}) e.set_over({job, 1});
  e.start();
  EXPECT_TRUE(e.eventually([&] { return !e.slurm.cancelled_ids().empty(); }));
  e.stop();
  EXPECT_THAT(std::set<::slurm::JobId>(e.slurm.cancelled.begin(), e.slurm.cancelled.end()),
              ElementsAre(::slurm::JobId{1, 0}, ::slurm::JobId{1, 2}));
}

TEST(SlurmExecutor, AJobThatWasCancelledBeforeItCouldBeHandedOverIsForgotten) {
  for (const bool lists : {true, false}) {
    Executing e;
    e.slurm.lists = lists;
    e.slurm.submits = testing::FakeScheduler::Submits::kIsAway;
    for (const core::JobId job : {1, 2}) e.executor->launch(e.request(job));
    EXPECT_TRUE(e.executor->queue_word({1, 1}));
    e.set_over({1, 1});
    e.start();
    EXPECT_TRUE(e.eventually([&] { return !e.executor->queue_word({1, 1}); })) << "whether or not Slurm answers";
    EXPECT_TRUE(e.executor->queue_word({2, 1}));
  }
}

TEST(SlurmExecutor, TellsWhatSlurmSaysToATimeLimit) {
  Executing e;
  e.slurm.is_operator = false;
  e.list("1", "RUNNING", "muster:s:1.1");
  e.slurm.jobs[{1, {}}].time_limit = 60min;
  e.adopt(1, "1");
  using Kind = LimitAnswer::Kind;
  EXPECT_EQ(e.executor->limit({1, 1}, 30min).kind, Kind::kTaken);
  EXPECT_EQ(e.slurm.jobs[(::slurm::JobId{1, {}})].time_limit, 30min);
  EXPECT_EQ(e.executor->limit({1, 1}, 31min).why, "Access/permission denied");
  EXPECT_EQ(e.executor->limit({1, 1}, 0min).kind, Kind::kRefused) << "no limit at all";
  EXPECT_EQ(e.executor->limit({2, 1}, 5min).kind, Kind::kLater) << "not followed";
  e.slurm.lists = false;
  EXPECT_EQ(e.executor->limit({1, 1}, 10min).kind, Kind::kLater);
}

}  // namespace
}  // namespace runtime::on_slurm
