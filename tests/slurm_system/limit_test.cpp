// Goal: a time limit that Slurm knows better than muster costs an attempt with the cause timed_out, whether muster sees
// it come or learns of it when all is over; who can save, saves.
// Method: a real Slurm, where an admin shortens what runs (scontrol update), or starts it while musterd is away. Slurm
// looks at limits every half minute, and a limit is a minute at least.
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct Limit;
class SlurmLimit : public Story<Limit> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2, .kill_wait = 2s}); }

 protected:
  /// Its ranks do not hear SIGTERM; it is content the second time.
  static std::string deaf_job() {
    const auto job = muster().submit(shell({.script = "trap '' TERM; touch $MUSTER_ATTEMPT_FOLDER/ready\n"
                                                      "[ $MUSTER_ATTEMPT = 2 ] || while :; do sleep 0.2; done",
                                            .resources = "time_limit = \"1h\"\nstop_grace = \"1s\"\n"}));
    stage().until_running(job, 1);
    const auto ready = muster().data() / "jobs" / job / "attempt-1" / "ready";
    EXPECT_TRUE(test::eventually([&] { return std::filesystem::exists(ready); }, 60s));
    return job;
  }
  static void expect_one_attempt_timed_out(const std::string& job) {
    const auto after = muster().until_state(job, "succeeded");
    ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
    EXPECT_EQ(text(attempt(after, 1), "cause"), "timed_out") << text(attempt(after, 1), "reason");
    for (const int number : {1, 2}) EXPECT_EQ(stage().submissions_of(job, number), 1);
  }
  /// Releases and checks a job on hold, whose rest has as long as it needs, however slow the machine is.
  static void expect_saved_once_and_goes_on(const std::string& job, const Training& what) {
    EXPECT_EQ(muster().cli({"limit", job, "1h"}).exit, 0);
    EXPECT_EQ(muster().cli({"release", job}).exit, 0);
    const auto after = muster().until_state(job, "succeeded", 180s);
    ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
    EXPECT_EQ(text(attempt(after, 1), "cause"), "timed_out") << text(attempt(after, 1), "reason");
    const auto saved = stage().saved_steps(job, 1);
    ASSERT_EQ(saved.size(), 1U);
    EXPECT_EQ(attempt(after, 2).at("resumed_from_step"), saved.back());
    stage().expect_model_of_calm_run(job, what);
  }
};

// Beside the one whose end musterd does not see, one trains whose own limit comes meanwhile: only its tasks can ask
// it to save.
TEST_F(SlurmLimit, ALimitThatAnAdminLoweredIsATimeLimitWithMusterdThereOrAway) {
  const auto seen = deaf_job(), unseen = deaf_job();
  ASSERT_EQ(slurm().run({"scontrol", "update", "JobId=" + stage().slurm_job(seen, 1), "TimeLimit=1"}).exit, 0);
  stage().until_ended(seen, 1, 180s);
  expect_one_attempt_timed_out(seen);

  const Training what{
      .every_steps = 0, .step_delay_ms = 700, .resources = "time_limit = \"50s\"\nstop_grace = \"20s\"\n"};
  const auto trains = muster().submit(training(what));
  stage().until_trains(trains, 1);
  EXPECT_EQ(muster().cli({"hold", trains}).exit, 0);
  const auto id = stage().slurm_job(unseen, 1), its_id = stage().slurm_job(trains, 1);
  muster().kill_daemon();
  ASSERT_EQ(slurm().run({"scontrol", "update", "JobId=" + id, "TimeLimit=1"}).exit, 0);
  EXPECT_TRUE(slurm_cluster::becomes(slurm(), id, "State", "TIMEOUT", 120s));
  EXPECT_TRUE(slurm_cluster::becomes(slurm(), its_id, "State", "FAILED", 60s)) << "it left before Slurm ended it";
  muster().start_daemon();
  expect_one_attempt_timed_out(unseen);
  EXPECT_THAT(text(attempt(muster().show(unseen), 1), "reason"), HasSubstr("Slurm ended it at the time limit"));
  stage().until_ended(trains, 1);
  expect_saved_once_and_goes_on(trains, what);
  EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 60s));
}

// By muster's own count, from when it saw them run, the limit would come later than Slurm's.
TEST_F(SlurmLimit, RanksThatBeganWhileMusterdWasAwaySaveBeforeALimitThatCountsFromTheirTrueStart) {
  const auto blocker = slurm_cluster::submit(slurm(), {"-N2", "--exclusive"}, "sleep 600");
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), blocker, "State", "RUNNING"));
  const Training what{
      .every_steps = 0, .step_delay_ms = 900, .resources = "time_limit = \"1m\"\nstop_grace = \"20s\"\n"};
  const auto job = muster().submit(training(what));
  const auto id = stage().until_handed_over(job);
  muster().kill_daemon();
  ASSERT_EQ(slurm().run({"scancel", blocker}).exit, 0);
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), id, "State", "RUNNING"));
  muster().start_daemon();
  stage().until_trains(job, 1);
  EXPECT_EQ(muster().cli({"hold", job}).exit, 0);
  const auto ended = stage().until_ended(job, 1, 90s);
  EXPECT_EQ(text(attempt(ended, 1), "reason"), "Slurm's time limit of 1 min is near");
  expect_saved_once_and_goes_on(job, what);
}

}  // namespace
}  // namespace story
