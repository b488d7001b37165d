// Goal: what Slurm does to a training job costs one attempt, with the right cause and budget, and not one bit of the
// model.
// Method: real Slurm, musterd, muster-task and workers on 2 nodes x 2 ranks over Gloo; Slurm's own commands and signals
// make the trouble; the judge is an uninterrupted run of the same job.
#include <signal.h>

#include "slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct Requeue;
class SlurmRequeue : public Story<Requeue> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 4}); }

 protected:
  /// Waits until the job has saved and gone a few steps beyond; Slurm's number of its first attempt.
  static std::string under_way(const std::string& job, int step = 24) {
    muster().until_step(job, step);
    return stage().slurm_job(job, 1);
  }
  /// Attempt 1 ended so, attempt 2 went on from where it was saved, and the model is what it should be.
  static Json expect_resumed(const std::string& job, const Training& what, const std::string& cause) {
    const auto after = muster().until_state(job, "succeeded");
    EXPECT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
    EXPECT_EQ(text(attempt(after, 1), "cause"), cause) << text(attempt(after, 1), "reason");
    EXPECT_EQ(text(attempt(after, 2), "cause"), "completed");
    const auto saved = stage().saved_steps(job, 1);
    EXPECT_FALSE(saved.empty());
    const int kept = saved.empty() ? 0 : saved.back();
    EXPECT_EQ(attempt(after, 2).at("resumed_from_step"), kept);
    EXPECT_EQ(stage().submissions_of(job, 1), 1);
    EXPECT_EQ(stage().submissions_of(job, 2), 1);
    stage().expect_model_of_calm_run(job, what);
    return after;
  }
};

TEST_F(SlurmRequeue, ScontrolRequeueIsANewAttemptThatCostsNoBudget) {
  const Training what;
  const auto job = muster().submit(training(what));
  const auto id = under_way(job);
  ASSERT_EQ(slurm().run({"scontrol", "requeue", id}).exit, 0);
  const auto after = expect_resumed(job, what, "requeued");
  EXPECT_GE(attempt(after, 2).at("resumed_from_step").get<int>(), 24) << "its ranks saved when they were told";
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("requeued in Slurm"));
  EXPECT_THAT(stage().events(job), testing::Not(HasSubstr(" of 3)"))) << "it is nobody's fault";
  // Slurm's own second run is nobody's: it was cancelled, or left at once.
  EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 20s));
}

TEST_F(SlurmRequeue, APreemptionWithoutGraceCountsAsPreempted) {
  const Training what{.every_steps = 0, .partition = "low"};
// Nothing but the save that was asked for can be resumed from, here and where the time limit is reached.
  const auto job = muster().submit(training(what));
  under_way(job, 4);
  slurm_cluster::submit(slurm(), {"-p", "high", "-N4", "--exclusive"}, "sleep 2");
  const auto after = expect_resumed(job, what, "preempted");
  EXPECT_THAT(stage().events(job), HasSubstr("preemption 1 of 1000"));
}

TEST_F(SlurmRequeue, TheTimeLimitIsSavedForAndCountsAsTimedOut) {
  const Training what{.every_steps = 0, .step_delay_ms = 400, .resources = "time_limit = \"40s\"\n"};
  const auto job = muster().submit(training(what));
  stage().until_ended(job, 1, 120s);
  // However slow the machine is, the second attempt is to finish.
  EXPECT_EQ(muster().cli({"limit", job, "1h"}).exit, 0);
  const auto after = expect_resumed(job, what, "timed_out");
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("time limit of 40 s reached"));
  EXPECT_THAT(stage().events(job), HasSubstr("1 of 3"));
}

TEST_F(SlurmRequeue, AnOutsidersScancelIsACancel) {
  const auto job = muster().submit(training({.steps = 400}));
  const auto id = under_way(job, 3);
  ASSERT_EQ(slurm().run({"scancel", id}).exit, 0);
  const auto after = muster().until_state(job, "cancelled");
  EXPECT_EQ(after.at("attempts").size(), 1U);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "cancelled");
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("not through muster"));
}

// The first to leave is long gone when Slurm says why: nobody calls it silent meanwhile.
// Method: a library preloaded into its ranks, ahead of a sanitizer where there is one.
TEST_F(SlurmRequeue, AnOutsidersScancelIsACancelHoweverLongAPeerTakesToLeave) {
  const auto job = muster().submit(training({.steps = 400,
                                             .more = "[env]\nLD_PRELOAD = \"" MUSTER_LATE_LEAVER "\"\n"
                                                     "ASAN_OPTIONS = \"verify_asan_link_order=0\"\n"}));
  const auto id = under_way(job, 3);
  ASSERT_EQ(slurm().run({"scancel", id}).exit, 0);
  const auto after = muster().until_state(job, "cancelled");
  EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("not through muster"));
}

TEST_F(SlurmRequeue, AnOutsidersScancelOfAQueuedJobIsACancelToo) {
  slurm_cluster::submit(slurm(), {"-N4", "--exclusive"}, "sleep 600");
  const auto job = muster().submit(shell({.script = "true"}));
  muster().until_state(job, "queued");
  ASSERT_EQ(slurm().run({"scancel", stage().slurm_job(job, 1)}).exit, 0);
  const auto after = muster().until_state(job, "cancelled");
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("not through muster"));
}

TEST_F(SlurmRequeue, ExitCodesAreTheRanksOwn) {
  const auto failing = muster().submit(
      shell({.script = "exit $((RANK == 1 ? 7 : 0))", .ranks_per_node = 2, .requeue = "max_failed = 1\n"}));
  const auto hopeless = muster().submit(shell({.script = "exit 93"}));
  const auto killed = muster().submit(shell({.script = "kill -SEGV $$", .requeue = "max_failed = 0\n"}));
  auto after = muster().until_state(failing, "failed");
  ASSERT_EQ(after.at("attempts").size(), 2U);
  for (const std::size_t number : {1, 2}) {
    EXPECT_EQ(text(attempt(after, number), "cause"), "failed");
    EXPECT_EQ(attempt(after, number).at("exit_code"), 7);
    EXPECT_EQ(attempt(after, number).at("rank"), 1);
  }
  after = muster().until_state(hopeless, "failed");
  EXPECT_EQ(after.at("attempts").size(), 1U) << "93: trying again cannot help";
  EXPECT_EQ(attempt(after, 1).at("exit_code"), 93);
  after = muster().until_state(killed, "failed");
  EXPECT_EQ(attempt(after, 1).at("signal"), SIGSEGV);
}

// One rank of four; the others are ended for it.
TEST_F(SlurmRequeue, RunningOutOfMemoryHasABudgetOfItsOwn) {
  const auto job = muster().submit(shell({.script = "[ $RANK = 2 ] && exit 97; sleep 600",
                                          .nodes = 2,
                                          .ranks_per_node = 2,
                                          .requeue = "max_out_of_memory = 1\nmax_failed = 0\n"}));
  const auto after = muster().until_state(job, "failed");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  for (const std::size_t number : {1, 2}) {
    EXPECT_EQ(text(attempt(after, number), "cause"), "out_of_memory") << text(attempt(after, number), "reason");
    EXPECT_EQ(attempt(after, number).at("rank"), 2);
  }
  EXPECT_THAT(text(after, "reason"), HasSubstr("2 times without progress (limit 1)"));
}

}  // namespace
}  // namespace story
