// Goal: what Slurm does to a training job costs one attempt, with the right cause and budget, and not one bit of the
// model.
// Method: real Slurm, musterd, muster-agent and workers on 2 nodes x 2 ranks over sockets; Slurm's own commands and
// signals make the trouble; the judge is an uninterrupted run of the same job.
#include <signal.h>

#include "tests/places.h"
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct Requeue;
class SlurmRequeue : public Story<Requeue> {
 public:
  /// Slurm holds jobs that it requeues for two minutes, as on a cluster that leaves cred_expire as it is.
  static void SetUpTestSuite() { set_up({.nodes = 4, .kill_wait = 5s, .cred_expire = 120s}); }

 protected:
  /// Waits until the job has saved and gone a few steps beyond; Slurm's number of its first attempt.
  static std::string under_way(const std::string& job, int step = 24) {
    muster().until_step(job, step);
    return stage().slurm_job(job, 1);
  }
  /// How long, by Slurm, a job's first attempt had run when its ranks were told to leave.
  static std::chrono::seconds ran_until_told_to_leave(const std::string& job) {
    const auto began =
        slurm().run({"env", "TZ=UTC", "squeue", "-h", "-t", "all", "-j", stage().slurm_job(job, 1), "-o", "%S"}).out;
    for (const auto& event : muster().json({"events", job})) {
      if (event.at("type") != "attempt_stopping") continue;
      return slurm_cluster::time_of(text(event, "at")) - slurm_cluster::time_of(began);
    }
    ADD_FAILURE() << "nobody told them";
    return {};
  }
};

// Nothing is saved but when it is asked for, so that there is nothing else to resume from.
TEST_F(SlurmRequeue, OneJobComesThroughARequeueAPreemptionALostSlurmstepdAndATimeLimitOneAfterTheOther) {
  const Training what{.steps = 120, .every_steps = 0, .step_delay_ms = 400, .partition = "low"};
  const auto job = muster().submit(training(what));
  muster().until_step(job, 4);
  ASSERT_EQ(slurm().run({"scontrol", "requeue", stage().slurm_job(job, 1)}).exit, 0);
  stage().until_running(job, 2, 60s);  // half of Slurm's hold

  stage().until_trains(job, 2);
  slurm_cluster::submit(slurm(), {"-p", "high", "-N4", "--exclusive"}, "sleep 2");
  stage().until_running(job, 3, 60s);

  stage().until_trains(job, 3);
  const auto node = stage().node_of_rank(job, 3);
  ASSERT_FALSE(slurm().kill_stepd(node, stage().slurm_job(job, 3)).empty());

  stage().until_trains(job, 4);
  // However slow the machine is, the last attempt is to finish. Once handed over, Slurm lets admins alone lengthen it.
  EXPECT_EQ(muster().cli({"hold", job}).exit, 0);
  EXPECT_EQ(muster().cli({"limit", job, "20s"}).exit, 0);
  stage().until_ended(job, 4);
  EXPECT_EQ(muster().cli({"limit", job, "1h"}).exit, 0);
  EXPECT_EQ(muster().cli({"release", job}).exit, 0);

  const auto after = muster().until_state(job, "succeeded", 180s);
  ASSERT_EQ(after.at("attempts").size(), 5U) << after.dump(1);
  const std::vector<std::pair<const char*, const char*>> ends = {{"requeued", "requeued in Slurm"},
                                                                 {"preempted", "preempted in Slurm"},
                                                                 {"node_failed", "slurmstepd"},
                                                                 {"timed_out", "time limit of 20 s reached"},
                                                                 {"completed", "every rank exited with 0"}};
  int kept = 0;
  for (std::size_t number = 1; number <= ends.size(); ++number) {
    SCOPED_TRACE("attempt " + std::to_string(number));
    const auto& [cause, reason] = ends[number - 1];
    const auto& one = attempt(after, number);
    EXPECT_EQ(text(one, "cause"), cause) << text(one, "reason");
    EXPECT_THAT(text(one, "reason"), HasSubstr(reason));
    EXPECT_EQ(one.at("resumed_from_step"), kept);
    EXPECT_EQ(stage().submissions_of(job, static_cast<int>(number)), 1);
    const auto saved = stage().saved_steps(job, static_cast<int>(number));
    EXPECT_EQ(saved.size(), text(one, "cause") == "node_failed" ? 0U : 1U) << "nobody could save, or all when asked";
    const int newest = saved.empty() ? kept + 1 : saved.back();
    EXPECT_GT(newest, kept);
    if (!saved.empty()) kept = newest;
  }
  // Each costs its own budget, and a requeue none: it is nobody's fault.
  const auto events = stage().events(job);
  for (const char* budget : {"preemption 1 of 1000", "1 of 10", "1 of 3"}) EXPECT_THAT(events, HasSubstr(budget));
  EXPECT_THAT(events, testing::Not(HasSubstr("2 of "))) << events;
  stage().expect_model_of_calm_run(job, what);
  // Slurm's own second runs are nobody's: they were cancelled, or left at once.
  EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 60s));
}

// The partition's default, which the job file says nothing of.
TEST_F(SlurmRequeue, RanksSaveBeforeALimitThatIsSlurmsAlone) {
  const auto default_time = [&](const std::string& time) {
    return slurm().run({"scontrol", "update", "partitionname=low", "DefaultTime=" + time}).exit;
  };
  const Training what{
      .every_steps = 0, .step_delay_ms = 900, .partition = "low", .resources = "stop_grace = \"25s\"\n"};
  ASSERT_EQ(default_time("1"), 0);
  const auto job = muster().submit(training(what));
  stage().until_running(job, 1);
  EXPECT_EQ(default_time("INFINITE"), 0);
  const auto after = muster().until_state(job, "succeeded", 240s);
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "timed_out");
  EXPECT_EQ(text(attempt(after, 1), "reason"), "Slurm's time limit of 1 min is near");
  EXPECT_LT(ran_until_told_to_leave(job), 55s) << "at 60 s it would do as well: Slurm looks every half minute";
  const auto saved = stage().saved_steps(job, 1);
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(attempt(after, 2).at("resumed_from_step"), saved.back());
  EXPECT_THAT(stage().events(job), HasSubstr("time limit 1 of"));
  stage().expect_model_of_calm_run(job, what);
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
  const auto job =
      muster().submit(training({.steps = 400,
                                .more = "[env]\nLD_PRELOAD = \"" + ::test::built_program("liblate_leaver.so") +
                                        "\"\n"
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
  EXPECT_THAT(text(after, "reason"), HasSubstr("2 times without anything new in its checkpoint folder (limit 1)"));
}

}  // namespace
}  // namespace story
