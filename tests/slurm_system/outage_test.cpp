// Goal: a Slurm that does not answer ends nothing, and whatever was asked meanwhile is done when it is back.
// Method: real Slurm; slurmctld is ended, killed and started under running jobs, while musterd asks twenty times as
// often as usual; a squeue of ours fails at once, where Slurm's own would take seconds.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

/// While the file `fails` lies beside it, squeue finds no slurmctld, and says so at once rather than after seconds;
/// while `hangs` does, it says nothing at all; while `knows_nothing` does, it lists no job and is content. While
/// `repeats` does, it answers what it answered last before, as a cache does.
class FakeSqueue {
 public:
  FakeSqueue() {
    test::write_file(folder_.path() / "squeue", R"sh(#!/bin/bash
printf . >> "$(dirname "$0")/calls"
while [ -e "$(dirname "$0")/hangs" ]; do sleep 0.2; done
if [ -e "$(dirname "$0")/fails" ]; then
  echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2
  exit 1
fi
here=$(dirname "$0")
if [ -e "$here/knows_nothing" ]; then exit 0; fi
# What stands between two fields is another random text in each call.
between=$(printf %s "$*" | sed -n 's/.*JobArrayID:\(~[0-9a-f]*~\),.*/\1/p')
if [ -z "$between" ]; then exec /usr/bin/squeue "$@"; fi
if [ ! -e "$here/repeats" ]; then
  answer=$here/answer.$$
  /usr/bin/squeue "$@" > "$answer" || exit
  sed -i "s/$between/@BETWEEN@/g" "$answer" && mv "$answer" "$here/kept"
fi
sed "s/@BETWEEN@/$between/g" "$here/kept"
)sh");
    ::chmod((folder_.path() / "squeue").c_str(), 0755);
  }
  std::string path() const { return folder_.path().string() + ":" + std::getenv("PATH"); }
  void fail(bool on) const { mark("fails", on); }
  void hang(bool on) const { mark("hangs", on); }
  void know_nothing(bool on) const { mark("knows_nothing", on); }
  void repeat(bool on) const { mark("repeats", on); }
  std::size_t calls() const { return test::read_file(folder_.path() / "calls").size(); }

 private:
  void mark(const char* name, bool on) const {
    if (on) {
      test::write_file(folder_.path() / name, "");
    } else {
      std::filesystem::remove(folder_.path() / name);
    }
  }

  test::TemporaryFolder folder_;
};

constexpr const char* kForgotten = "Slurm does not know any more that it runs";

struct Outage;
class SlurmOutage : public Story<Outage> {
 public:
  static void SetUpTestSuite() {
    squeue_ = std::make_unique<FakeSqueue>();
    set_up({.nodes = 4}, {"--slurm-poll-ms", "50", "--log-level", "debug"}, {{"PATH", squeue_->path()}});
  }
  static void TearDownTestSuite() {
    Story::TearDownTestSuite();
    squeue_.reset();
  }

 protected:
  void TearDown() override {
    if (down_) slurmctld_is_back();
    squeue_->hang(false);
    squeue_->know_nothing(false);
    squeue_->repeat(false);
    squeue_->fail(false);
    Story::TearDown();
  }
  void slurmctld_is_down() {
    squeue_->fail(true);
    slurm().stop_ctld();
    down_ = true;
  }
  void slurmctld_is_back() {
    down_ = false;
    slurm().start_ctld();
    squeue_->fail(false);
  }
  static void drain_all_nodes() {
    ASSERT_EQ(slurm().run({"scontrol", "update", "nodename=node[1-4]", "state=drain", "reason=story"}).exit, 0);
  }
  /// A slurmctld that has just begun refuses this for a moment, and does it all the same.
  static void resume(const std::string& nodes) {
    const auto resumed = [&] {
      slurm().run({"scontrol", "update", "nodename=" + nodes, "state=resume"});
      const auto states = slurm().run({"sinfo", "-h", "-N", "-p", "main", "-n", nodes, "-o", "%T"});
      return states.exit == 0 && states.out.find("drain") == std::string::npos;
    };
    ASSERT_TRUE(test::eventually(resumed, 60s));
  }
  /// A job on node1 and node2 that has come so far, and a slurmctld killed before it had written down that it runs:
  /// when it begins again the job waits and all nodes are drained. musterd hears nothing of Slurm until squeue_sees().
  std::string runs_and_slurmctld_does_not_know(const std::string& toml,
                                               const std::function<void(const std::string&)>& come_so_far) {
    drain_all_nodes();
    const auto job = muster().submit(toml);
    muster().until_state(job, "queued");
    const auto state = slurm().folder() / "state", before = muster().folder() / "state-before";
    slurmctld_is_down();
    std::filesystem::copy(state, before, std::filesystem::copy_options::recursive);
    slurmctld_is_back();
    resume("node[1-2]");
    come_so_far(job);
    squeue_->fail(true);
    slurm().kill_ctld();
    down_ = true;
    std::filesystem::remove_all(state);
    std::filesystem::rename(before, state);
    return job;
  }
  void slurmctld_begins_again() {
    down_ = false;
    slurm().start_ctld();
  }
  void squeue_sees() { squeue_fails(false); }
  void squeue_fails(bool on) { squeue_->fail(on); }
  void squeue_hangs(bool on) { squeue_->hang(on); }
  void squeue_knows_nothing(bool on) { squeue_->know_nothing(on); }
  void squeue_repeats_itself(bool on) { squeue_->repeat(on); }
  /// Longer than a job that Slurm does not list any more is waited for.
  static void until_listings_were_stale_for_long(const std::string& job) {
    const auto stale = [&] {
      return text(muster().show(job), "scheduler_problem").find("stale listing: squeue") != std::string::npos;
    };
    ASSERT_TRUE(test::eventually(stale, 60s)) << text(muster().show(job), "scheduler_problem");
    const auto since = std::chrono::steady_clock::now();
    const auto before = failed_polls();
    ASSERT_TRUE(test::eventually(
        [&] { return std::chrono::steady_clock::now() - since > 7s && failed_polls() - before >= 10; }, 60s));
    EXPECT_TRUE(stale());
  }
  static int failed_polls() {
    const auto log = muster().daemon_log();
    const std::string word = "Slurm does not answer";
    int count = 0;
    for (auto at = log.find(word); at != std::string::npos; at = log.find(word, at + 1)) ++count;
    return count;
  }
  static std::filesystem::path folder(const std::string& job) { return muster().data() / "jobs" / job; }
  /// A rank that waits for the file `go`, and then does this.
  static std::string waiting_for_go(const std::string& then = "true") {
    return "cd $MUSTER_CHECKPOINT_FOLDER/..; touch began; while [ ! -e go ]; do sleep 0.1; done; " + then;
  }
  /// Leaves with 0 when it is told to; in its second attempt at once.
  static std::string leaves_with_zero() {
    return "trap 'exit 0' TERM; cd $MUSTER_CHECKPOINT_FOLDER/..; touch began\n"
           "[ $MUSTER_ATTEMPT = 2 ] || while :; do sleep 0.1; done";
  }
  /// Longer than an end waits for anything but Slurm's word, and many polls.
  static void until_squeue_has_failed_for_long() {
    const auto since = std::chrono::steady_clock::now();
    const auto before = failed_polls();
    const auto calls_before = squeue_->calls();
    ASSERT_TRUE(test::eventually(
        [&] { return std::chrono::steady_clock::now() - since > 7s && failed_polls() - before >= 30; }, 120s))
        << failed_polls() - before;
    const auto calls = squeue_->calls() - calls_before;
    EXPECT_LE(calls, failed_polls() - before + 1U) << "one tells of all jobs; that of a poll under way may be counted";
  }
  /// And Slurm has said so: no listing will, once squeue fails.
  static void until_begun(const std::string& job) {
    stage().until_running(job, 1);
    ASSERT_TRUE(test::eventually([&] { return std::filesystem::exists(folder(job) / "began"); }, 60s));
  }
  static void go(const std::string& job) { test::write_file(folder(job) / "go", ""); }

 private:
  static inline std::unique_ptr<FakeSqueue> squeue_;
  bool down_ = false;
};

TEST_F(SlurmOutage, ARestartOfSlurmctldIsNothingToATrainingJob) {
  const Training what;
  const auto job = muster().submit(training(what));
  muster().until_step(job, 5);
  // In good order first: that writes down that the job runs.
  slurm().stop_ctld();
  slurm().start_ctld();
  muster().until_step(job, 15);
  slurm().kill_ctld();
  muster().until_step(job, 25);
  slurm().start_ctld();
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  EXPECT_EQ(stage().submissions_of(job, 1), 1);
  stage().expect_model_of_calm_run(job, what);
}

TEST_F(SlurmOutage, AHundredFailedPollsEndNothingAndAreTold) {
  const auto running = muster().submit(shell({.script = waiting_for_go()}));
  const auto leaving = muster().submit(shell({.script = waiting_for_go("exit 7"), .requeue = "max_failed = 1\n"}));
  until_begun(running);
  until_begun(leaving);
  const auto queued = muster().submit(
      shell({.script = "true", .nodes = 4, .more = "[slurm]\npartition = \"low\"\nexclusive = true\n"}));
  muster().until_state(queued, "queued");
  const auto before = failed_polls();
  slurmctld_is_down();
  // Requests to muster are accepted meanwhile.
  const auto waiting = muster().submit(shell({.script = "true"}));
  const auto cancelled = muster().submit(shell({.script = "sleep 600"}));
  EXPECT_EQ(muster().cli({"cancel", cancelled}).exit, 0);
  // A rank that ends is known without Slurm.
  go(leaving);
  EXPECT_EQ(text(attempt(stage().until_ended(leaving, 1, 30s), 1), "cause"), "failed");
  ASSERT_TRUE(test::eventually([&] { return failed_polls() - before >= 100; }, 60s)) << failed_polls() - before;

  EXPECT_THAT(text(muster().show(running), "scheduler_problem"), HasSubstr("unreachable since"));
  EXPECT_THAT(muster().cli({"show", running}).out, HasSubstr("unreachable"));
  const auto why = [&] { return text(muster().json({"why", waiting}), "reason"); };
  EXPECT_TRUE(test::eventually([&] { return why().find("unreachable since") != std::string::npos; }, 60s)) << why();
  const auto listed = muster().cli({"list"});
  EXPECT_THAT(listed.out + listed.err, HasSubstr("unreachable since"));
  EXPECT_EQ(muster().show(running).at("state"), "running");

  slurmctld_is_back();
  EXPECT_EQ(muster().until_state(waiting, "succeeded").at("attempts").size(), 1U);
  EXPECT_EQ(muster().until_state(leaving, "failed").at("attempts").size(), 2U);
  EXPECT_EQ(muster().until_state(cancelled, "cancelled").at("attempts").size(), 0U);
  EXPECT_TRUE(test::eventually([&] { return text(muster().show(running), "scheduler_problem").empty(); }, 60s));
  const auto untouched = muster().show(queued);
  EXPECT_EQ(untouched.at("state"), "queued");
  EXPECT_EQ(untouched.at("attempts").size(), 1U) << untouched.dump(1);
  go(running);
  EXPECT_EQ(muster().until_state(running, "succeeded").at("attempts").size(), 1U);
  for (const auto& job : {waiting, running, queued}) EXPECT_EQ(stage().submissions_of(job, 1), 1);
  // Slurm's own process beside the rank that ended meanwhile tells slurmctld only a minute later, for which clear()
  // would wait.
  const auto ended = stage().slurm_job(leaving, 1);
  slurm().kill_stepd(slurm_cluster::field(slurm(), ended, "NodeList"), ended);
}

// Each is given up after 5 s, since musterd asks so often; until the first one is, nobody can know that Slurm is out of
// reach.
TEST_F(SlurmOutage, ASqueueThatHangsEndsNothingAndHoldsUpNoCancel) {
  const Training what{.every_steps = 0};
  const auto trains = muster().submit(training(what));
  const auto running = muster().submit(shell({.script = waiting_for_go()}));
  const auto leaving = muster().submit(shell({.script = waiting_for_go("exit 7"), .requeue = "max_failed = 1\n"}));
  const auto cancelled = muster().submit(shell({.script = waiting_for_go(), .resources = "stop_grace = \"2s\"\n"}));
  for (const auto& job : {running, leaving, cancelled}) until_begun(job);
  muster().until_step(trains, 3);
  const auto before = failed_polls();
  squeue_hangs(true);
  EXPECT_EQ(muster().cli({"cancel", cancelled}).exit, 0);
  muster().until_state(cancelled, "cancelled", 30s);
  go(leaving);
  EXPECT_EQ(text(attempt(stage().until_ended(leaving, 1, 30s), 1), "cause"), "failed");
  const auto problem = [&] { return text(muster().show(running), "scheduler_problem"); };
  EXPECT_TRUE(test::eventually([&] { return problem().find("unreachable since") != std::string::npos; }, 60s));
  EXPECT_THAT(muster().cli({"show", running}).out, HasSubstr("unreachable"));
  EXPECT_GT(failed_polls(), before);
  EXPECT_EQ(muster().show(running).at("state"), "running");
  const auto waiting = muster().submit(shell({.script = "true"}));

  squeue_hangs(false);
  EXPECT_TRUE(test::eventually([&] { return problem().empty(); }, 40s)) << problem();
  EXPECT_EQ(muster().until_state(waiting, "succeeded").at("attempts").size(), 1U);
  EXPECT_EQ(muster().until_state(leaving, "failed").at("attempts").size(), 2U);
  EXPECT_EQ(muster().until_state(trains, "succeeded").at("attempts").size(), 1U);
  go(running);
  EXPECT_EQ(muster().until_state(running, "succeeded").at("attempts").size(), 1U);
  for (const auto& job : {trains, running, waiting, cancelled}) EXPECT_EQ(stage().submissions_of(job, 1), 1);
  stage().expect_model_of_calm_run(trains, what);
  EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 40s));
}

// An answer without any row; then the answer of before: what waits there has started since, and a new job is missing.
TEST_F(SlurmOutage, AListingThatContradictsWhatIsKnownEndsNothing) {
  const Training what{.steps = 20'000, .every_steps = 0};  // more than are made while the test looks
  const auto trains = muster().submit(training(what));
  const auto running = muster().submit(shell({.script = waiting_for_go()}));
  until_begun(running);
  muster().until_step(trains, 3);
  drain_all_nodes();
  const auto waiting = muster().submit(shell({.script = waiting_for_go()}));
  muster().until_state(waiting, "queued");
  // By an admin.
  const auto number = stage().slurm_job(waiting, 1);
  ASSERT_EQ(slurm().run({"scontrol", "update", "JobId=" + number, "Comment=an admin's word"}).exit, 0);
  muster().kill_daemon();
  muster().start_daemon();

  squeue_knows_nothing(true);
  until_listings_were_stale_for_long(waiting);
  EXPECT_THAT(text(muster().json({"why", waiting}), "reason"), HasSubstr("stale listing: squeue does not list"));
  squeue_knows_nothing(false);
  EXPECT_TRUE(test::eventually([&] { return text(muster().show(waiting), "scheduler_problem").empty(); }, 60s));

  squeue_repeats_itself(true);
  resume("node[1-4]");
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), number, "State", "RUNNING"));
  ASSERT_TRUE(test::eventually([&] { return std::filesystem::exists(folder(waiting) / "began"); }, 60s));
  const auto later = muster().submit(shell({.script = waiting_for_go()}));
  until_listings_were_stale_for_long(waiting);
  squeue_repeats_itself(false);
  until_begun(later);
  for (const auto& job : {running, waiting, later}) go(job);
  for (const auto& job : {running, waiting, later}) {
    EXPECT_EQ(muster().until_state(job, "succeeded").at("attempts").size(), 1U) << stage().events(job);
  }
  EXPECT_EQ(muster().show(trains).at("attempts").size(), 1U) << stage().events(trains);
  EXPECT_EQ(muster().cli({"cancel", trains}).exit, 0);
  for (const auto& job : {running, later, trains}) EXPECT_EQ(stage().submissions_of(job, 1), 1);
}

TEST_F(SlurmOutage, ACancelDuringAnOutageEndsTheRanksNowAndTheSlurmJobLater) {
  const auto job = muster().submit(shell(
      {.script = "cd $MUSTER_CHECKPOINT_FOLDER/..; touch began; sleep 600", .resources = "stop_grace = \"2s\"\n"}));
  until_begun(job);
  slurmctld_is_down();
  EXPECT_EQ(muster().cli({"cancel", job}).exit, 0);
  muster().until_state(job, "cancelled", 20s);
  slurmctld_is_back();
  // A squeue that was under way when slurmctld left may take all of its time.
  EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 40s));
}

// To Slurm it ended as well as any job does; only the listing that nobody gets tells it from one that is done.
TEST_F(SlurmOutage, AVictimThatLeavesWithZeroWhileSqueueFailsComesBack) {
  ASSERT_EQ(slurm().run({"scontrol", "update", "partitionname=low", "gracetime=60"}).exit, 0);
  const auto job = muster().submit(
      shell({.script = leaves_with_zero(), .more = "[slurm]\npartition = \"low\"\nexclusive = true\n"}));
  until_begun(job);
  const auto victim = stage().slurm_job(job, 1);
  squeue_fails(true);
  slurm_cluster::submit(slurm(), {"-p", "high", "-N4", "--exclusive"}, "sleep 1");
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), victim, "State", "COMPLETED"));
  until_squeue_has_failed_for_long();
  const auto meanwhile = muster().show(job);
  EXPECT_EQ(text(meanwhile, "state"), "running") << meanwhile.dump(1);
  EXPECT_THAT(text(meanwhile, "scheduler_problem"), HasSubstr("unreachable since"));
  squeue_fails(false);
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(slurm().run({"scontrol", "update", "partitionname=low", "gracetime=0"}).exit, 0);
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "preempted") << text(attempt(after, 1), "reason");
  EXPECT_THAT(stage().events(job), HasSubstr("preemption 1 of 1000"));
  for (const int number : {1, 2}) EXPECT_EQ(stage().submissions_of(job, number), 1);
}

// There is no accounting, and when squeue works again the job waits, as after any requeue. Slurm's log of the run alone
// tells the two apart.
TEST_F(SlurmOutage, APreemptionThatIsOverBeforeSqueueAnswersIsNoMereRequeue) {
  const auto submit = [] {
    return muster().submit(
        shell({.script = waiting_for_go(), .more = "[slurm]\npartition = \"low\"\nexclusive = true\n"}));
  };
  const auto preempted = submit(), requeued = submit();
  until_begun(preempted);
  until_begun(requeued);
  const auto victim = stage().slurm_job(preempted, 1), other = stage().slurm_job(requeued, 1);
  const auto node = slurm_cluster::field(slurm(), victim, "NodeList");
  squeue_fails(true);
  ASSERT_EQ(slurm().run({"scontrol", "requeue", other}).exit, 0);
  slurm_cluster::submit(slurm(), {"-p", "high", "-w", node, "--exclusive"}, "sleep 1");
  // Slurm starts a requeued job again after seconds, so it may not wait any more when the test looks.
  for (const auto& id : {victim, other}) {
    ASSERT_TRUE(slurm_cluster::becomes(slurm(), id, "RestartCnt", "1", 60s));
    ASSERT_TRUE(test::eventually([&] { return slurm_cluster::field(slurm(), id, "State") != "COMPLETING"; }, 60s));
  }
  squeue_fails(false);
  for (const auto& [job, cause] : {std::pair(preempted, "preempted"), std::pair(requeued, "requeued")}) {
    stage().until_running(job, 2, 60s);
    go(job);
    const auto after = muster().until_state(job, "succeeded");
    ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
    EXPECT_EQ(text(attempt(after, 1), "cause"), cause) << text(attempt(after, 1), "reason");
  }
}

// One ends of the SIGTERM, one leaves with 0, and of one nobody wants to know what Slurm will say.
TEST_F(SlurmOutage, WhatIsCancelledInSlurmWhileSqueueFailsIsCancelled) {
  const auto killed = muster().submit(shell({.script = waiting_for_go()}));
  const auto leaves = muster().submit(shell({.script = leaves_with_zero()}));
  const auto given_up = muster().submit(shell({.script = leaves_with_zero()}));
  std::vector<std::string> slurm_jobs;
  for (const auto& job : {killed, leaves, given_up}) {
    until_begun(job);
    slurm_jobs.push_back(stage().slurm_job(job, 1));
  }
  squeue_fails(true);
  for (const auto& job : slurm_jobs) ASSERT_EQ(slurm().run({"scancel", job}).exit, 0);
  for (const auto& job : slurm_jobs) ASSERT_TRUE(slurm_cluster::becomes(slurm(), job, "State", "CANCELLED"));
  until_squeue_has_failed_for_long();
  for (const auto& job : {killed, leaves, given_up}) EXPECT_EQ(text(muster().show(job), "state"), "running") << job;
  EXPECT_EQ(muster().cli({"cancel", given_up}).exit, 0);
  muster().until_state(given_up, "cancelled");
  squeue_fails(false);
  for (const auto& job : {killed, leaves}) {
    const auto after = muster().until_state(job, "cancelled");
    ASSERT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
    EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("cancelled in Slurm"));
  }
}

// Such a slurmctld would start a second run of the same attempt, and nothing in the run says so.
TEST_F(SlurmOutage, AJobThatSlurmctldDoesNotKnowRunsIsAnAttemptThatIsOver) {
  const Training what{.step_delay_ms = 400};  // slurmctld starts before the last step, also on a busy machine
  const auto job =
      runs_and_slurmctld_does_not_know(training(what), [](const std::string& id) { muster().until_step(id, 24); });
  slurmctld_begins_again();
  squeue_sees();
  // A node that is free too early is given the second run before it has told slurmctld of the first. slurmctld then
  // ends the job as FAILED with exit code 1, and nothing in that end says that it is not the program's.
  ASSERT_TRUE(test::eventually([&] { return text(muster().show(job), "state") != "running"; }, 60s));
  resume("node[1-4]");
  const auto after = muster().until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "requeued");
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr(kForgotten));
  const auto resumed = attempt(after, 2).at("resumed_from_step").get<int>();
  EXPECT_GE(resumed, what.every_steps);
  for (const int number : {1, 2}) EXPECT_EQ(stage().submissions_of(job, number), 1);
  std::map<int, std::vector<int>> steps;  // by attempt
  for (const auto& row : muster().metrics(job)) {
    steps[row.at("attempt").get<int>()].push_back(row.at("step").get<int>());
  }
  for (const int number : {1, 2}) ASSERT_FALSE(steps[number].empty()) << "attempt " << number << " made no step";
  EXPECT_EQ(steps[1].front(), 1);
  EXPECT_EQ(steps[2].front(), resumed + 1);
  EXPECT_EQ(steps[2].back(), what.steps);
  for (const int number : {1, 2}) {
    EXPECT_EQ(steps[number].back() - steps[number].front() + 1, static_cast<int>(steps[number].size()));
  }
  stage().expect_model_of_calm_run(job, what);
  EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 40s));
}

// The nodes of the first run do not hear slurmctld meanwhile, and so do not end it.
TEST_F(SlurmOutage, ASecondRunOfTheSameAttemptLeavesWhileTheFirstGoesOn) {
  const auto ran = muster().folder() / "ran";
  const auto twice = [&](const std::string& line) {
    return test::eventually([&] { return test::read_file(ran) == line + line; }, 60s);
  };
  const auto job = runs_and_slurmctld_does_not_know(
      shell({.script = "echo attempt $MUSTER_ATTEMPT >> " + ran.string() + "; [ $MUSTER_ATTEMPT = 2 ] || sleep 600",
             .nodes = 2,
             .resources = "stop_grace = \"2s\"\n"}),
      [&](const std::string& id) {
        stage().until_running(id, 1);
        ASSERT_TRUE(twice("attempt 1\n"));
      });
  const auto id = stage().slurm_job(job, 1);
  const auto deaf = stage().pids_of_slurmds({"node1", "node2"});
  for (const pid_t pid : deaf) ::kill(pid, SIGSTOP);
  slurmctld_begins_again();
  resume("node[3-4]");
  EXPECT_TRUE(slurm_cluster::becomes(slurm(), id, "State", "COMPLETED", 60s)) << "its second run, that is";
  EXPECT_EQ(slurm_cluster::field(slurm(), id, "NodeList"), "node[3-4]");
  EXPECT_EQ(text(muster().show(job), "state"), "running");
  EXPECT_TRUE(twice("attempt 1\n")) << "not once more";
  for (const pid_t pid : deaf) ::kill(pid, SIGCONT);
  squeue_sees();
  resume("node[1-2]");
  const auto after = muster().until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "requeued");
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr(kForgotten));
  EXPECT_EQ(test::read_file(ran), "attempt 1\nattempt 1\nattempt 2\nattempt 2\n");
  EXPECT_THAT(test::read_file(muster().data() / "jobs" / job / "attempt-1" / "slurm.log"),
              HasSubstr("has begun already"));
}

}  // namespace
}  // namespace story
