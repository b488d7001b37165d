// Goal: what the executor asks of Slurm for all its attempts together, and what it tells of each.
// Method: the real executor with its threads on a Slurm in memory; a test waits for facts, never for time.
#include "controller/executors/slurm/slurm_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "agent/protocol/facts.h"
#include "controller/executors/slurm/attempt_files.h"
#include "controller/executors/slurm/launcher.h"
#include "controller/executors/slurm/poller.h"
#include "controller/executors/slurm/slurm_submission.h"
#include "tests/controller/executors/slurm/fake_scheduler.h"
#include "tests/controller/executors/slurm/follow.h"
#include "tests/controller/executors/slurm/listening_socket.h"
#include "tests/controller/service/bench.h"
#include "tests/manual_clock.h"

namespace executors::on_slurm {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::words;

core::SchedulerJob scheduler_job(const std::string& id) {
  const auto job = *::slurm::parse_job_id(id);
  return {job.job, job.array_task};
}

/// An executor, its Slurm, and what it tells. What a test changes of Slurm it changes before start() or after stop().
class Executing {
 public:
  enum class Time {
    kReal,
    kHurried,  // passes while a test waits, faster than it really does
  };
  explicit Executing(Time time = Time::kReal) : hurried_(time == Time::kHurried) {
    options.root = folder.path();
    options.agent_program = "/opt/muster-agent";
    options.store_name = "s";
    options.user = "ada";
    options.poll_interval = 20ms;
    options.urgent_interval = 20ms;
    executor = make_slurm_executor(slurm, clock(), options);
    executor->set_history([this](const core::AttemptKey& key) {
      std::lock_guard lock(mutex_);
      return over_.contains(key);
    });
  }
  ~Executing() { stop(); }

  void start() {
    executor->start([this](core::JobId job, core::EventBody fact) {
      const auto vouch = executor->vouch({job, 1}, 0);
      std::lock_guard lock(mutex_);
      vouched_[job].push_back(vouch);
      told_[job].push_back(words(fact));
      if (const auto* stopping = std::get_if<core::AttemptStopping>(&fact)) reasons_[job] = stopping->reason;
      if (const auto* gone = std::get_if<core::AttemptGone>(&fact)) reasons_[job] = gone->reason;
    });
  }
  void stop() { executor->shutdown(); }
  void set_over(const core::AttemptKey& key) {
    std::lock_guard lock(mutex_);
    over_.insert(key);
  }
  common::Clock& clock() { return hurried_ ? static_cast<common::Clock&>(hurried_clock_) : real_clock_; }
  std::string folder_of(const core::AttemptKey& key) const {
    return (folder.path() / "jobs" / std::to_string(key.job) / ("attempt-" + std::to_string(key.number))).string();
  }
  /// An attempt of one rank that an earlier controller handed over as this Slurm job, and saw start; unless
  /// it left something out: then it waits.
  void adopt(core::JobId job, const std::string& id, const std::string& exclude = {},
             const std::vector<std::string>& left_out = {}) {
    const core::AttemptKey key{job, 1};
    SubmissionRecord record;
    record.comment = "muster:s:" + std::to_string(job) + ".1";
    record.id = ::slurm::parse_job_id(id);
    record.exclude = exclude;
    record.left_out = left_out;
    record.tried_at_ms = clock().wall().time_since_epoch().count();
    std::filesystem::create_directories(folder_of(key));
    write_record(folder_of(key), record);
    core::Attempt attempt;
    attempt.number = 1;
    attempt.scheduler_job = scheduler_job(id);
    attempt.queued_at = clock().wall();
    if (left_out.empty()) attempt.started_at = attempt.queued_at;
    attempt.ranks.resize(1);
    executor->adopt(key, attempt);
  }
  /// One that an earlier controller handed over as this Slurm job, and that waits.
  void adopt_waiting(core::JobId job, const std::string& id) {
    SubmissionRecord record;
    record.comment = "muster:s:" + std::to_string(job) + ".1";
    record.id = ::slurm::parse_job_id(id);
    std::filesystem::create_directories(folder_of({job, 1}));
    write_record(folder_of({job, 1}), record);
    core::Attempt attempt;
    attempt.number = 1;
    attempt.scheduler_job = scheduler_job(id);
    attempt.queued_at = clock().wall();
    attempt.ranks.resize(1);
    executor->adopt({job, 1}, attempt);
  }
  LaunchAnswer launch(const LaunchRequest& request) { return executor->launcher(request).launch(request); }
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
  /// A run as accounting remembers it.
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
  /// Hurried time passes in such steps meanwhile.
  template <class Condition>
  bool eventually(Condition&& holds, core::Millis step = 50ms) {
    for (const auto end = std::chrono::steady_clock::now() + 60s; !holds();) {
      if (std::chrono::steady_clock::now() > end) return false;
      if (hurried_) hurried_clock_.advance(step);
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

  /// The executor's words on rank 0, asked for while it told each thing of the job.
  std::vector<Vouch> vouched(core::JobId job) {
    std::lock_guard lock(mutex_);
    return vouched_[job];
  }
  bool has_told(core::JobId job) {
    std::lock_guard lock(mutex_);
    return told_.contains(job);
  }
  /// Why the job's attempt stops, or is over.
  std::string reason(core::JobId job) {
    std::lock_guard lock(mutex_);
    return reasons_[job];
  }

  service::testing::TempFolder folder;
  testing::FakeScheduler slurm;
  SlurmOptions options;
  std::unique_ptr<Executor> executor;

 private:
  const bool hurried_;
  common::RealClock real_clock_;
  common::ManualClock hurried_clock_;
  std::mutex mutex_;
  std::map<core::JobId, std::vector<std::string>> told_;
  std::map<core::JobId, std::vector<Vouch>> vouched_;
  std::map<core::JobId, std::string> reasons_;
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

TEST(SlurmExecutor, WhatSlurmWroteIsQuotedWhereNoTaskWasEverHeard) {
  Executing e(Executing::Time::kHurried);
  e.slurm.past = {e.run("1", "FAILED")};
  e.adopt(1, "1");
  std::ofstream(e.folder_of({1, 1}) + "/slurm.log")
      << "slurmstepd: error: execve(): /opt/muster-agent: No such file or directory\n"
         "srun: error: node1: task 0: Exited with exit code 2\n";
  e.start();
  EXPECT_EQ(e.first_word(1), "gone failed");
  e.stop();
  EXPECT_THAT(e.reason(1),
              HasSubstr("; its Slurm log ends with: slurmstepd: error: execve(): /opt/muster-agent: No such "
                        "file or directory"));
}

// Whoever is unheard and unknown is called silent at once, and takes the blame.
TEST(SlurmExecutor, WhatTheScriptWroteTellsASecondRunFromSetupLinesThatEndIt) {
  for (const bool begun : {true, false}) {
    Executing e(Executing::Time::kHurried);
    e.list("1", "COMPLETED", "muster:s:1.1");
    e.slurm.with({1, {}}, [](auto& job) { job.node_list = "node1"; });
    e.adopt(1, "1");
    std::ofstream(e.folder_of({1, 1}) + "/slurm.log")
        << (begun ? std::string(kBegunAlready) + ": nothing to do\n" : "module: loaded\n");
    e.start();
    EXPECT_EQ(e.first_word(1), begun ? "gone requeued" : "gone failed");
    EXPECT_THAT(e.reason(1), HasSubstr(begun ? "Slurm does not know any more that it runs" : "its setup lines ended"));
  }
}

TEST(SlurmExecutor, ARankIsVouchedForUntilItsEndHasBeenTold) {
  Executing e(Executing::Time::kHurried);
  e.slurm.past = {e.run("1", "FAILED")};
  e.adopt(1, "1");
  e.start();
  EXPECT_EQ(e.first_word(1), "gone failed");
  e.stop();
  EXPECT_THAT(e.vouched(1), ElementsAre(Vouch::kEnded));
}

// Goal: a rank that ended while nobody could be told is known by its end, and its node is not lost.
// Method: its task is heard, falls silent, and has left its word in the status file.
TEST(SlurmExecutor, ARankThatFellSilentIsLookedForInItsStatusFileFirst) {
  Executing e;
  e.list("1", "RUNNING", "muster:s:1.1");
  e.adopt(1, "1");
  e.start();
  e.executor->task({1, 1}, 0, testing::running());
  EXPECT_EQ(e.executor->vouch({1, 1}, 0), Vouch::kAlive);
  const std::filesystem::path folder = e.folder_of({1, 1});
  std::filesystem::create_directories(folder);
  namespace protocol = agent::protocol;
  const auto started = protocol::to_line(protocol::Started{"boot", "node1", 1, {{100, 1}}});
  std::ofstream(folder / "status.jsonl") << started;
  ASSERT_TRUE(e.eventually([&] { return e.executor->vouch({1, 1}, 0) != Vouch::kAlive; })) << "silent";
  std::ofstream(folder / "status.jsonl") << started << protocol::to_line(protocol::Exited{0, {3, 0}, false, 0, ""});
  const auto said = e.executor->vouch({1, 1}, 0);
  EXPECT_TRUE(said == Vouch::kEnded || said == Vouch::kGone) << static_cast<int>(said);
  EXPECT_EQ(e.first_word(1), "rank 0 exit 3");
}

TEST(SlurmExecutor, NobodyIsGivenUpForSilenceWhileTheControllerIsDeaf) {
  Executing e(Executing::Time::kHurried);
  e.list("1", "RUNNING", "muster:s:1.1");
  e.adopt(1, "1");
  e.start();
  e.executor->task({1, 1}, 0, testing::running());
  e.executor->stop({1, 1}, {1s, false});
  int rounds = 0;
  EXPECT_TRUE(e.eventually([&] {
    e.executor->was_deaf();
    return ++rounds == 200;
  })) << "ten seconds";
  EXPECT_FALSE(e.has_told(1));
  EXPECT_EQ(e.first_word(1), "gone cancelled") << "when it hears again, and hears nobody";
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
    e.stop();
    if (answers) {
      EXPECT_THAT(e.slurm.calls_to_history, ElementsAre(ElementsAre(1U, 2U))) << "there is none: asked once";
    }
  }
}

// No listing told of it, and there is no accounting.
TEST(SlurmExecutor, APreemptionThatNoListingToldOfIsReadFromTheLogOfTheRun) {
  Executing e(Executing::Time::kHurried);
  const std::map<core::JobId, std::string> logs = {
      {1,
       "srun: forcing job termination\n"
       "slurmstepd: error: *** JOB 1 ON node2 CANCELLED AT 2026-11-28T19:38:58 DUE TO PREEMPTION ***\n"},
      {2, "slurmstepd: error: *** JOB 2 ON node2 CANCELLED AT 2026-11-28T19:38:58 ***\n"},
      {3, ""}};
  for (const auto& [job, log] : logs) {
    const auto id = std::to_string(job);
    e.list(id, "PENDING", "muster:s:" + id + ".1", 1);
    e.adopt(job, id);
    if (!log.empty()) test::write_file(e.folder_of({job, 1}) + "/slurm.log", log);
  }
  e.start();
  EXPECT_EQ(e.first_word(1), "stopping preempted save");
  EXPECT_EQ(e.reason(1), "preempted in Slurm");
  EXPECT_EQ(e.first_word(2), "stopping requeued save");
  EXPECT_EQ(e.first_word(3), "stopping requeued save");
}

TEST(SlurmExecutor, WhoCancelledIsCalledByNameWhereThereIsOne) {
  Executing e;
  e.slurm.past = {e.run("1", "CANCELLED by 0"), e.run("2", "CANCELLED by 4000000000")};
  for (const auto* id : {"1", "2"}) e.adopt(std::stoi(id), id);
  e.start();
  for (const core::JobId job : {1, 2}) EXPECT_EQ(e.first_word(job), "stopping cancelled");
  EXPECT_EQ(e.reason(1), "cancelled in Slurm by root, not through muster");
  EXPECT_EQ(e.reason(2), "cancelled in Slurm by 4000000000, not through muster");
}

TEST(SlurmExecutor, WhoCancelledAListedJobIsAskedOfAccountingOnceForAll) {
  Executing e;
  e.slurm.past = {e.run("1", "CANCELLED by 0"), e.run("2_7", "CANCELLED by 0")};
  for (const auto* id : {"1", "2_7"}) {
    e.list(id, "CANCELLED", "muster:s:" + std::to_string(std::stoi(id)) + ".1");
    e.adopt(std::stoi(id), id);
  }
  e.start();
  for (const core::JobId job : {1, 2}) {
    EXPECT_EQ(e.first_word(job), "stopping cancelled");
    EXPECT_EQ(e.reason(job), "cancelled in Slurm by root, not through muster");
  }
  e.stop();
  EXPECT_THAT(e.slurm.calls_to_history, ElementsAre(ElementsAre(1U, 2U)));
}

TEST(SlurmExecutor, OneListingOfItsOwnUserTellsOfAllJobs) {
  Executing e(Executing::Time::kHurried);
  for (const auto* id : {"1", "2", "3"}) {
    e.list(id, "CANCELLED", "muster:s:" + std::string(id) + ".1");
    e.adopt(std::stoi(id), id);
  }
  e.start();
  // Time stands still: there is one poll.
  for (const auto end = std::chrono::steady_clock::now() + 60s;
       !(e.has_told(1) && e.has_told(2) && e.has_told(3)) && std::chrono::steady_clock::now() < end;) {
    std::this_thread::sleep_for(5ms);
  }
  e.stop();
  for (const core::JobId job : {1, 2, 3}) EXPECT_EQ(e.first_word(job), "stopping cancelled");
  EXPECT_EQ(e.slurm.calls_to_list, 1);
  EXPECT_THAT(e.slurm.users_listed, ElementsAre("ada"));
}

TEST(SlurmExecutor, ASlurmThatIsAwayEndsNothingAndIsToldSinceWhen) {
  Executing e(Executing::Time::kHurried);
  e.list("1", "RUNNING", "muster:s:1.1");
  e.adopt(1, "1");
  EXPECT_FALSE(e.executor->trouble());
  e.slurm.lists = false;
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.executor->trouble().has_value(); }));
  const auto first = *e.executor->trouble();
  EXPECT_EQ(first.why, "squeue: Unable to contact slurm controller");
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 25; })) << "far longer than a lost job is missed";
  EXPECT_EQ(e.executor->trouble()->since, first.since) << "not since it was last asked";
  EXPECT_FALSE(e.has_told(1)) << "silence says nothing of a job";
  e.slurm.set_lists(true);
  EXPECT_TRUE(e.eventually([&] { return !e.executor->trouble(); }));
  EXPECT_TRUE(e.slurm.cancelled_ids().empty());
}

// A cache in front of squeue keeps its answer of before; what waited has started meanwhile, and another was submitted.
TEST(SlurmExecutor, AListingThatContradictsWhatIsKnownIsNoListing) {
  Executing e(Executing::Time::kHurried);
  e.list("1", "PENDING", "muster:s:1.1");
  e.adopt_waiting(1, "1");
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 2; }));
  e.slurm.keep_listing(true);
  e.slurm.take("#SBATCH --comment=muster:s:2.1\n", 2);
  e.adopt_waiting(2, "2");
  ASSERT_TRUE(e.eventually([&] { return e.executor->trouble().has_value(); }));
  EXPECT_EQ(e.executor->trouble()->why,
            "stale listing: squeue does not list Slurm job 2, which scontrol shows as PENDING");
  e.slurm.with({2, {}}, [](auto& job) { job.state.state = ::slurm::JobState::kCancelled; });
  e.slurm.start({1, {}});
  e.executor->task({1, 1}, 0, testing::running());
  const auto says = [&](const std::string& words) {
    const auto trouble = e.executor->trouble();
    return trouble && trouble->why.find(words) != std::string::npos;
  };
  e.slurm.omit({2, {}});
  e.slurm.keep_listing(false);
  EXPECT_TRUE(e.eventually([&] { return says("Slurm job 2, which scontrol shows as CANCELLED"); }));
  const auto before = e.slurm.times_listed();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() > before + 25; })) << "far longer than a job is missed";
  EXPECT_FALSE(e.has_told(1));
  EXPECT_FALSE(e.has_told(2));
  e.slurm.omit({2, {}}, false);
  EXPECT_EQ(e.first_word(1), "started node1");
  EXPECT_EQ(e.first_word(2), "gone cancelled");
  EXPECT_FALSE(e.executor->trouble());
}

TEST(SlurmExecutor, AJobThatRunsIsNotForgottenBecauseAnOldListingSaysThatItWaits) {
  Executing e(Executing::Time::kHurried);
  e.list("1", "PENDING", "muster:s:1.1");
  e.adopt(1, "1");
  e.slurm.keep_listing(true);
  e.slurm.start({1, {}});
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.executor->trouble().has_value(); }));
  EXPECT_EQ(e.executor->trouble()->why,
            "stale listing: squeue lists Slurm job 1 as PENDING, which scontrol shows as RUNNING");
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 25; }));
  e.slurm.keep_listing(false);
  EXPECT_TRUE(e.eventually([&] { return !e.executor->trouble(); }));
  const auto before = e.slurm.times_listed();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() > before + 5; }));
  EXPECT_FALSE(e.has_told(1));
  EXPECT_TRUE(e.slurm.cancelled_ids().empty());
}

// Goal: a launcher's fresh listing does not make the poller believe its own old one.
// Method: the poller has an old listing in hand and asks for the job by number; meanwhile a launcher lists afresh.
TEST(SlurmExecutor, AnOldListingIsNotBelievedBecauseAnotherThreadHasSeenAFreshOne) {
  Executing e(Executing::Time::kHurried);
  e.list("1", "PENDING", "muster:s:1.1");
  e.adopt(1, "1");
  SubmissionRecord unsure;
  unsure.comment = "muster:s:9.1";
  unsure.unsure = true;
  std::filesystem::create_directories(e.folder_of({9, 1}));
  write_record(e.folder_of({9, 1}), unsure);
  e.slurm.keep_listing(true);
  e.slurm.start({1, {}});
  e.executor->task({1, 1}, 0, testing::running());
  std::atomic<bool> listed_afresh = false;
  e.slurm.during_find = [&] {
    e.slurm.keep_listing(false);
    e.launch(e.request(9));
    listed_afresh = true;
  };
  e.start();
  ASSERT_TRUE(e.eventually([&] { return listed_afresh.load(); }));
  const auto before = e.slurm.times_listed();
  ASSERT_TRUE(e.eventually([&] {
    e.executor->task({1, 1}, 0, testing::running());
    return e.slurm.times_listed() > before + 5;
  }));
  EXPECT_FALSE(e.has_told(1));
  EXPECT_TRUE(e.slurm.cancelled_ids().empty());
}

// Somebody may have stopped the whole step: then neither rank nor task is heard of a node that is well.
TEST(SlurmExecutor, WhetherANodeIsThereIsFoundOutBeforeAnybodyIsMissedOnIt) {
  for (const auto& [is_there, has_own_port] : {std::pair(true, true), {false, true}, {true, false}, {false, false}}) {
    SCOPED_TRACE(std::to_string(is_there) + std::to_string(has_own_port));
    Executing e(Executing::Time::kHurried);
    const testing::ListeningSocket slurmd;
    const test::ClaimedPort nobodys;
    auto& node = e.slurm.all_nodes.emplace_back();
    node.name = "node1";
    node.address = "127.0.0.1";
    node.states = {"MIXED"};
    const auto port = std::to_string(is_there ? slurmd.port() : nobodys.number());
    if (has_own_port) {
      node.fields["Port"] = port;
    } else {
      e.slurm.slurmd_port = port;
    }
    e.list("1", "PENDING", "muster:s:1.1");
    e.adopt_waiting(1, "1");
    e.slurm.start({1, {}});
    e.start();
    EXPECT_EQ(e.first_word(1), "started node1");
    e.executor->task({1, 1}, 0, testing::running());
    EXPECT_EQ(e.executor->vouch({1, 1}, 0), Vouch::kAlive);
    ASSERT_TRUE(e.eventually([&] { return e.executor->vouch({1, 1}, 0) == Vouch::kAsking; }, 10ms));
    const auto word = is_there ? Vouch::kNodeAnswers : Vouch::kUnknown;
    EXPECT_TRUE(e.eventually([&] { return e.executor->vouch({1, 1}, 0) == word; }, 1ms)) << is_there;
  }
}

TEST(SlurmExecutor, ANodeIsThereWhereAnotherJobsTaskIsHeard) {
  Executing e(Executing::Time::kHurried);
  for (const auto* id : {"1", "2"}) {
    e.list(id, "PENDING", "muster:s:" + std::string(id) + ".1");
    e.adopt_waiting(std::stoi(id), id);
    e.slurm.start({std::stoul(id), {}});
  }
  e.start();
  for (const core::JobId job : {1, 2}) EXPECT_EQ(e.first_word(job), "started node1");
  e.executor->task({1, 1}, 0, testing::running());
  const auto vouched = [&] {
    e.executor->task({2, 1}, 0, testing::running());
    return e.executor->vouch({1, 1}, 0);
  };
  EXPECT_TRUE(e.eventually([&] { return vouched() == Vouch::kNodeAnswers; }));
}

// slurmctld died before it had written down that the job runs.
TEST(SlurmExecutor, WhatSlurmHasReallyForgottenIsOverAndWhereTasksAreHeardItIsAskedTwice) {
  for (const bool heard : {false, true}) {
    Executing e(Executing::Time::kHurried);
    e.list("1", "PENDING", "muster:s:1.1");
    e.adopt(1, "1");
    const auto hear = [&] {
      if (heard) e.executor->task({1, 1}, 0, testing::running());
    };
    hear();
    e.start();
    ASSERT_TRUE(e.eventually([&] { return hear(), e.has_told(1); }));
    EXPECT_EQ(e.first_word(1), "stopping requeued save");
    EXPECT_EQ(e.slurm.times_asked_for(1), heard ? 2U : 1U);
  }
}

// By an admin, who may do so to a job that waits; then musterd is started again.
TEST(SlurmExecutor, AJobWhoseCommentIsChangedIsKnownByItsSubmissionAndByItsFolder) {
  for (const bool seen_before : {true, false}) {
    Executing e(Executing::Time::kHurried);
    e.list("1", "PENDING", "muster:s:1.1");
    e.slurm.with({1, {}}, [&](auto& job) {
      job.submitted = ::slurm::Time(1795253486s);
      job.work_folder = e.folder_of({1, 1});
    });
    const auto change = [&] { e.slurm.with({1, {}}, [](auto& job) { job.comment = "an admin's word"; }); };
    if (!seen_before) change();
    e.adopt_waiting(1, "1");
    e.start();
    ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 2; }));
    if (seen_before) change();
    const auto before = e.slurm.times_listed();
    ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() > before + 25; }));
    EXPECT_FALSE(e.has_told(1));
    EXPECT_EQ(e.slurm.times_asked_for(1), seen_before ? 0U : 1U);
    e.slurm.start({1, {}});
    EXPECT_EQ(e.first_word(1), "started node1");
    e.executor->stop({1, 1}, {0ms, false});
    EXPECT_TRUE(e.eventually([&] { return !e.slurm.cancelled_ids().empty(); })) << "it is ours to cancel";
  }
}

TEST(SlurmExecutor, TellsWhyAJobWaitsAndWhenItMayStart) {
  Executing e;
  e.list("1", "PENDING", "muster:s:1.1");
  e.slurm.jobs[{1, {}}].reason = "Resources";
  e.slurm.jobs[{1, {}}].started = ::slurm::Time(1795253486s);
  e.list("2", "RUNNING", "muster:s:2.1");
  e.adopt(1, "1");
  e.adopt(2, "2");
  e.start();
  const auto word = [&](core::JobId job) { return e.executor->queue_word({job, 1}).value_or(QueueWord{}); };
  ASSERT_TRUE(e.eventually([&] { return !word(1).reason.empty(); }));
  EXPECT_EQ(word(1).scheduler_job, "1");
  EXPECT_EQ(word(1).reason, "Resources");
  EXPECT_EQ(word(1).sentence, "The job is next, and the nodes it needs are busy.");
  EXPECT_EQ(word(1).action, "Wait until they are free, or ask for fewer nodes, CPUs or GPUs.");
  EXPECT_EQ(word(1).expected_start, core::Time(1795253486s));
  EXPECT_EQ(word(2).sentence, "") << "it does not wait";
}

TEST(SlurmExecutor, TellsSinceWhenAJobIsSuspendedAndForgetsItWhenItGoesOn) {
  Executing e(Executing::Time::kHurried);
  e.list("1", "PENDING", "muster:s:1.1");
  e.adopt_waiting(1, "1");
  e.slurm.start({1, {}});
  e.start();
  EXPECT_EQ(e.first_word(1), "started node1");
  const auto since = [&] { return e.executor->queue_word({1, 1}).value_or(QueueWord{}).suspended_since; };
  EXPECT_FALSE(since());
  e.slurm.with({1, {}}, [](auto& job) { job.state.state = ::slurm::JobState::kSuspended; });
  ASSERT_TRUE(e.eventually([&] { return since().has_value(); }));
  const auto first = *since();
  const auto before = e.slurm.times_listed();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() > before + 3; }));
  EXPECT_EQ(since(), first) << "not since it was last seen";
  e.slurm.with({1, {}}, [](auto& job) { job.state.state = ::slurm::JobState::kRunning; });
  EXPECT_TRUE(e.eventually([&] { return !since(); }));
}

// Slurm holds the job a moment before it drains the node; and where it never does, there is no node to name.
TEST(SlurmExecutor, ANodeThatCouldNotStartAJobIsNamedBeforeItsEnd) {
  for (const bool drains : {true, false}) {
    Executing e(Executing::Time::kHurried);
    e.slurm.drain("n1", "Prolog error [root@1]");
    e.list("1", "PENDING", "muster:s:1.1", 1);
    e.slurm.jobs[{1, {}}].reason = "launch failed requeued held";
    e.adopt(1, "1");
    e.start();
    if (drains) {
      ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 2; }, 1ms));
      EXPECT_FALSE(e.has_told(1)) << "n1 has been drained for long";
      const auto now = std::chrono::duration_cast<std::chrono::seconds>(e.clock().wall().time_since_epoch());
      e.slurm.drain("n2", "Prolog error [root@" + std::to_string(now.count()) + "]");
    }
    EXPECT_EQ(e.first_word(1),
              drains ? "lost n2: Slurm could not start the job on it (Prolog error)" : "stopping node_failed");
  }
}

/// A job of a minute that ends so long from now by a clock of slurmctld's that is so far ahead.
void run_with_end(Executing& e, std::chrono::seconds ahead, std::chrono::seconds left) {
  e.slurm.ahead = ahead;
  e.list("1", "RUNNING", "muster:s:1.1");
  auto& job = e.slurm.jobs[{1, {}}];
  job.time_limit = 60s;
  job.ends = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()) + ahead + left;
  e.adopt(1, "1");
  e.start();
}

TEST(SlurmExecutor, WhenAJobWillEndIsUnderstoodByTheClockThatSaysIt) {
  Executing ours_is_behind;
  run_with_end(ours_is_behind, 1h, 15s);
  EXPECT_EQ(ours_is_behind.first_word(1), "stopping timed_out save") << "half a minute may be needed for that";
  Executing ours_is_ahead;
  run_with_end(ours_is_ahead, -1h, 15min);
  ASSERT_TRUE(ours_is_ahead.eventually([&] { return ours_is_ahead.slurm.times_listed() >= 10; }));
  EXPECT_FALSE(ours_is_ahead.has_told(1)) << "it has more than ten minutes";
}

TEST(SlurmExecutor, AHoldIsAskedForAgainWhenSlurmIsBack) {
  Executing e;
  const ::slurm::JobId id{1, {}};
  e.list("1", "PENDING", "muster:s:1.1");
  e.slurm.jobs[id].priority = 7;
  e.adopt(1, "1");
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 2; }));
  e.slurm.lists = false;
  EXPECT_EQ(e.executor->hold({1, 1}, true), HoldAnswer::kLater);
  e.slurm.lists = true;
  EXPECT_EQ(e.executor->hold({1, 1}, true), HoldAnswer::kDone);
  EXPECT_EQ(e.slurm.jobs[id].priority, 0U);
  EXPECT_EQ(e.executor->hold({1, 1}, false), HoldAnswer::kDone);
  EXPECT_GT(e.slurm.jobs[id].priority, 0U);
  EXPECT_EQ(e.executor->hold({2, 1}, true), HoldAnswer::kRefused) << "not followed: there is nothing to ask again";
}

// Two nodes were lost, and one of them no more; the job file wants none of n9. Slurm is away at first.
TEST(SlurmExecutor, WhatWaitsLongerThanANodeIsLeftOutMayHaveItAfterARestartToo) {
  using Asked = std::pair<::slurm::JobId, std::vector<std::string>>;
  Executing e;
  for (const auto* id : {"1", "2", "3_0", "3_1", "3_2"}) e.list(id, "PENDING", "");
  e.slurm.jobs[{2, {}}].state = e.slurm.jobs[{3, 0}].state = ::slurm::parse_job_state("RUNNING");
  core::JobId number = 0;
  for (auto& [id, job] : e.slurm.jobs) {
    job.comment = "muster:s:" + std::to_string(++number) + ".1";
    e.adopt(number, ::slurm::to_string(id), "n9", {"n1", "n2"});
  }
  e.executor->set_lost_nodes([] { return LostNodes{{"n2", 0}, {"n1", 99}}; });
  e.slurm.lists = false;
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 3; }));
  EXPECT_EQ(e.slurm.times_excluded(), 0U);
  e.slurm.set_lists(true);
  const auto listed = e.slurm.times_listed();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= listed + 5; }));
  e.stop();
  EXPECT_THAT(e.slurm.excluded, ElementsAre(Asked{{1, {}}, {"n2", "n9"}}, Asked{{3, {}}, {"n2", "n9"}}))
      << "once; not what runs";
}

TEST(SlurmExecutor, WhatIsStillLostStaysLeftOut) {
  Executing e;
  e.list("1", "PENDING", "muster:s:1.1");
  e.adopt(1, "1", "", {"n1", "n2"});
  e.executor->set_lost_nodes([] { return LostNodes{{"n2", 0}, {"n1", 1}, {"n3", 0}}; });
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 5; }));
  EXPECT_EQ(e.slurm.times_excluded(), 0U);
}

// slurmctld has lost ours and given its number to another, who must not pay for it.
TEST(SlurmExecutor, AStrangersJobWithOurNumberIsNeverCancelled) {
  Executing e(Executing::Time::kHurried);
  e.list("5", "RUNNING", "a stranger's");
  e.list("6", "PENDING", "muster:s:6.1");
  e.adopt(5, "5");
  e.adopt_waiting(6, "6");  // Slurm is asked as long as it waits
  e.start();
  e.executor->stop({5, 1}, {core::Millis(0)});
  EXPECT_EQ(e.first_word(5), "gone node_failed");
  const auto listed = e.slurm.times_listed();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= listed + 20; }));
  EXPECT_TRUE(e.slurm.cancelled_ids().empty());
}

TEST(SlurmExecutor, AStrangersJobWithOurNumberIsNeitherHeldNorLimited) {
  Executing e;
  const ::slurm::JobId id{5, {}};
  e.list("5", "PENDING", "a stranger's");
  e.slurm.jobs[id].priority = 7;
  e.slurm.jobs[id].time_limit = 60min;
  e.adopt(5, "5");
  EXPECT_EQ(e.executor->hold({5, 1}, true), HoldAnswer::kLater) << "not listed yet";
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 2; }));
  EXPECT_EQ(e.executor->limit({5, 1}, 10min).kind, LimitAnswer::Kind::kLater);
  e.executor->hold({5, 1}, true);
  EXPECT_EQ(e.slurm.jobs[id].priority, 7U);
  EXPECT_EQ(e.slurm.jobs[id].time_limit, 60min);
}

TEST(SlurmExecutor, ANumberThatWasOursOnceIsNotForEver) {
  Executing e(Executing::Time::kHurried);
  e.list("5", "RUNNING", "muster:s:5.1");
  e.list("6", "PENDING", "muster:s:6.1");
  e.adopt(5, "5");
  e.adopt_waiting(6, "6");  // Slurm is asked as long as it waits
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 2; }));
  e.slurm.give_away({5, {}});
  const auto given_away = e.slurm.times_listed();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= given_away + 2; }));
  e.executor->stop({5, 1}, {core::Millis(0)});
  const auto listed = e.slurm.times_listed();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= listed + 20; }));
  EXPECT_TRUE(e.slurm.cancelled_ids().empty());
}

TEST(SlurmExecutor, ANodeThatFailsTheHealthCheckIsNamedBeforeTheAttemptEnds) {
  Executing e;
  e.list("1", "FAILED", "muster:s:1.1");
  e.slurm.jobs[{1, {}}].exit = ::slurm::ExitStatus{96, 0};
  e.adopt(1, "1");
  std::ofstream(e.folder_of({1, 1}) + "/slurm.log") << "muster: the health check failed on n7 with exit code 3\n";
  e.start();
  EXPECT_EQ(e.first_word(1), "lost n7: its health check failed with exit code 3");
}

// The controller died between sbatch and its own record, and came back to find that people had cancelled.
TEST(SlurmExecutor, ElementsOfAnArrayWhoseAttemptsAreOverAreCancelledAndNoOthers) {
  Executing e;
  std::vector<LaunchRequest> sweep;
  for (const core::JobId job : {11, 12, 13, 14}) sweep.push_back(e.request(job, "s11"));
  AttemptTable table;
  EXPECT_EQ(
      Launcher(e.slurm, e.clock(), e.options, table, [&] { return e.slurm.list("ada"); }).launch_all(sweep).size(), 4U);
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
    for (const core::JobId job : {1, 2}) e.launch(e.request(job));
    EXPECT_TRUE(e.executor->queue_word({1, 1}));
    e.set_over({1, 1});
    e.start();
    EXPECT_TRUE(e.eventually([&] { return !e.executor->queue_word({1, 1}); })) << "whether or not Slurm answers";
    EXPECT_TRUE(e.executor->queue_word({2, 1}));
  }
}

// One that has its nodes may be at its teardown; Slurm's own second run has nothing to tear down.
TEST(SlurmExecutor, WhatAnEarlierControllerLeftMayTearDownUnlessSlurmHasStartedItAgain) {
  Executing e(Executing::Time::kHurried);
  e.list("1", "RUNNING", "muster:s:1.1");
  e.list("2", "RUNNING", "muster:s:2.1", 1);
  for (const core::JobId job : {1, 2}) e.set_over({job, 1});
  e.start();
  ASSERT_TRUE(e.eventually([&] { return !e.slurm.cancelled_ids().empty(); }));
  EXPECT_THAT(e.slurm.cancelled_ids(), Each(::slurm::JobId{2, {}}));
  const auto cancels_first = [&] {
    const auto ids = e.slurm.cancelled_ids();
    return std::ranges::find(ids, ::slurm::JobId{1, {}}) != ids.end();
  };
  EXPECT_TRUE(e.eventually(cancels_first, 1s)) << "not for ever";
}

// An idle executor would list fifty times meanwhile if it listed as often as with an attempt.
TEST(SlurmExecutor, AsksNothingOnceAListingShowsThatNothingIsLeft) {
  Executing e;
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() > 0; }));
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(e.slurm.times_listed(), 1);
  ASSERT_TRUE(std::holds_alternative<core::AttemptLaunched>(e.launch(e.request(1))));
  EXPECT_TRUE(e.eventually([&] { return e.slurm.times_listed() > 3; })) << "an attempt is there";
}

TEST(SlurmExecutor, AsksUntilSlurmAnswersWhatIsLeft) {
  Executing e;
  e.slurm.lists = false;
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.executor->trouble().has_value(); }));
  e.slurm.set_lists(true);
  EXPECT_TRUE(e.eventually([&] { return !e.executor->trouble(); }));
}

TEST(SlurmExecutor, TellsWhatSlurmSaysToAScript) {
  Executing e;
  e.slurm.estimate =
      ::slurm::StartEstimate{.start = ::slurm::Time(1795253486s), .node_list = "n1", .partition = "main"};
  const auto check_script = [&] { return e.executor->check_script(e.executor->scripts({e.request(1)}).at(0)); };
  const auto check = check_script();
  EXPECT_EQ(check.start, core::Time(1795253486s));
  EXPECT_EQ(check.partition, "main");
  EXPECT_EQ(check.nodes, "n1");
  EXPECT_EQ(check.refusal + check.unreachable, "");
  e.slurm.estimate = ::slurm::Refused{"Requested node configuration is not available"};
  EXPECT_EQ(check_script().refusal, "Requested node configuration is not available");
  e.slurm.estimate = ::slurm::Unreachable{"sbatch: Unable to contact slurm controller"};
  EXPECT_EQ(check_script().unreachable, "sbatch: Unable to contact slurm controller");
}

TEST(SlurmExecutor, TellsWhatSlurmSaysToATimeLimit) {
  Executing e;
  e.slurm.is_operator = false;
  e.list("1", "RUNNING", "muster:s:1.1");
  e.slurm.jobs[{1, {}}].time_limit = 60min;
  e.adopt(1, "1");
  e.start();
  ASSERT_TRUE(e.eventually([&] { return e.slurm.times_listed() >= 2; }));
  using Kind = LimitAnswer::Kind;
  EXPECT_EQ(e.executor->limit({1, 1}, 30min).kind, Kind::kTaken);
  EXPECT_EQ(e.slurm.jobs[(::slurm::JobId{1, {}})].time_limit, 30min);
  EXPECT_EQ(e.executor->limit({1, 1}, 31min).why,
            "Access/permission denied (only Slurm's operators and admins may give a job more time)");
  EXPECT_EQ(e.executor->limit({1, 1}, 0min).kind, Kind::kRefused) << "no limit at all";
  EXPECT_EQ(e.executor->limit({2, 1}, 5min).kind, Kind::kLater) << "not followed";
  e.slurm.lists = false;
  EXPECT_EQ(e.executor->limit({1, 1}, 10min).kind, Kind::kLater);
}

// The answer of the sbatch got lost, and people have decided otherwise since.
TEST(SlurmExecutor, ALaunchThatIsFoundAgainTellsWhichTimeLimitSlurmHas) {
  for (const std::string sweep : {"", "sweep-1"}) {
    SCOPED_TRACE(sweep);
    Executing e;
    std::vector<LaunchRequest> requests{e.request(1, sweep)};
    if (!sweep.empty()) requests.push_back(e.request(2, sweep));
    const auto launch = [&](std::chrono::hours limit) {
      for (auto& request : requests) request.time_limit = limit;
      return e.executor->launcher(requests.front()).launch_all(requests);
    };
    e.slurm.submits = testing::FakeScheduler::Submits::kTakesSilently;
    for (const auto& answer : launch(1h)) EXPECT_TRUE(std::holds_alternative<LaunchLater>(answer));
    for (const auto& answer : launch(4h)) EXPECT_EQ(std::get<core::AttemptLaunched>(answer).time_limit, 1h);
    EXPECT_EQ(e.slurm.scripts.size(), 1U);
  }
}

TEST(SlurmExecutor, ALaunchThatFailsOnItsFilesIsUnsureOnlyWhereSlurmMayHaveIt) {
  Executing e;
  const auto no_folder = e.request(1), odd_record = e.request(2);
  std::filesystem::create_directories(std::filesystem::path(no_folder.attempt_folder).parent_path());
  std::ofstream(no_folder.attempt_folder) << "in the way";
  std::filesystem::create_directories(odd_record.attempt_folder + "/slurm.json");
  for (const auto& request : {no_folder, odd_record}) {
    const auto later = std::get<LaunchLater>(e.launch(request));
    EXPECT_THAT(later.why, HasSubstr(request.attempt_folder));
    EXPECT_EQ(later.unsure, request.key == odd_record.key);
  }
  EXPECT_TRUE(std::get<LaunchLater>(e.executor->launcher(odd_record).withdraw(odd_record).value()).unsure);
  EXPECT_TRUE(e.slurm.scripts.empty());
}

}  // namespace
}  // namespace executors::on_slurm
