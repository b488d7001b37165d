// Goal: a victim that leaves within its grace period always comes back, whether Slurm calls it FAILED, as one that
// saved and left with 99, or COMPLETED.
// Method: a real Slurm whose low partition gives 10 s; a high job takes the nodes; the judge is an uninterrupted run.
#include "tests/places.h"
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

/// Slurm's state of a job that muster ends before its script has ended, as muster knows by then that the job is over.
constexpr const char* kTidiedUp = "CANCELLED";

struct Grace;
class SlurmGrace : public Story<Grace> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2, .grace = 10s, .kill_wait = 5s}); }
};

TEST_F(SlurmGrace, AVictimThatSavedInTimeComesBack) {
  const Training what{.step_delay_ms = 300, .partition = "low"};
  const auto job = muster().submit(training(what));
  muster().until_step(job, 24);
  const auto victim = stage().slurm_job(job, 1);
  slurm_cluster::submit(slurm(), {"-p", "high", "-N2", "--exclusive"}, "sleep 2");
  const auto after = muster().until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "preempted") << text(attempt(after, 1), "reason");
  EXPECT_THAT(stage().events(job), HasSubstr("preemption 1 of 1000"));
  EXPECT_THAT(slurm_cluster::field(slurm(), victim, "State"), AnyOf("FAILED", kTidiedUp)) << "by its 99, in the period";
  const auto saved = stage().saved_steps(job, 1);
  ASSERT_FALSE(saved.empty());
  EXPECT_GE(saved.back(), 24) << "saved when it was told, not at its next turn";
  EXPECT_EQ(attempt(after, 2).at("resumed_from_step"), saved.back());
  EXPECT_EQ(stage().submissions_of(job, 1), 1);
  EXPECT_EQ(stage().submissions_of(job, 2), 1);
  stage().expect_model_of_calm_run(job, what);
}

// To Slurm it ended as well as any job does; only that it was being preempted tells it from one that is done.
TEST_F(SlurmGrace, AVictimThatLeavesWithZeroIsNotDone) {
  for (const bool away : {false, true}) {
    SCOPED_TRACE(away ? "musterd is away" : "musterd is there");
    const auto job = muster().submit(shell({.script = "trap 'exit 0' TERM; touch $MUSTER_ATTEMPT_FOLDER/ready-$RANK\n"
                                                      "[ $MUSTER_ATTEMPT = 2 ] || while :; do sleep 0.1; done",
                                            .nodes = 2,
                                            .more = "[slurm]\npartition = \"low\"\nexclusive = true\n"}));
    stage().until_running(job, 1);
    const auto victim = stage().slurm_job(job, 1);
    const auto folder = muster().data() / "jobs" / job / "attempt-1";
    for (const char* mark : {"ready-0", "ready-1"}) {
      ASSERT_TRUE(test::eventually([&] { return std::filesystem::exists(folder / mark); }, 60s)) << mark;
    }
    if (away) muster().kill_daemon();
    slurm_cluster::submit(slurm(), {"-p", "high", "-N2", "--exclusive"}, "sleep 1");
    if (away) {
      EXPECT_TRUE(slurm_cluster::becomes(slurm(), victim, "State", "COMPLETED"));
      muster().start_daemon();
    }
    const auto after = muster().until_state(job, "succeeded");
    EXPECT_THAT(slurm_cluster::field(slurm(), victim, "State"), AnyOf("COMPLETED", kTidiedUp));
    ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
    EXPECT_EQ(text(attempt(after, 1), "cause"), "preempted") << text(attempt(after, 1), "reason");
    EXPECT_THAT(stage().events(job), HasSubstr("preemption 1 of 1000"));
    EXPECT_EQ(text(attempt(after, 2), "cause"), "completed") << text(attempt(after, 2), "reason");
    EXPECT_TRUE(slurm_cluster::becomes(slurm(), stage().slurm_job(job, 2), "State", "COMPLETED"));
    for (const int number : {1, 2}) EXPECT_EQ(stage().submissions_of(job, number), 1);
  }
}

// Twice: first the period is the partition's 10 s, then there is none, and KillWait is all there is. Beside it, a
// victim that knows nothing of signals.
// Method: a library preloaded into its ranks, ahead of a sanitizer where there is one, holds up what they flush.
TEST_F(SlurmGrace, ASaveThatDoesNotFitLeavesTheLastGoodCheckpoint) {
  const auto slow = (muster().folder() / "slow").string();
  const Training what{.step_delay_ms = 300,
                      .partition = "low",
                      .more = "[env]\nLD_PRELOAD = \"" + ::test::built_program("libslow_disk.so") +
                              "\"\nSLOW_DISK = \"" + slow + "\"\nASAN_OPTIONS = \"verify_asan_link_order=0\"\n"};
  test::write_file(slow + "-2", "");
  const auto stubborn =
      muster().submit(shell({.script = "trap '' TERM; [ $MUSTER_ATTEMPT = 2 ] || while :; do sleep 1; done",
                             .nodes = 2,
                             .resources = "stop_grace = \"2m\"\n",
                             .more = "[slurm]\npartition = \"low\"\n"}));
  stage().until_running(stubborn, 1);
  const auto job = muster().submit(training(what));
  muster().until_step(job, 24);
  test::write_file(slow + "-1", "");
  slurm_cluster::submit(slurm(), {"-p", "high", "-N2", "--exclusive"}, "sleep 1");
  stage().until_ended(job, 1);
  const auto kept = stage().saved_steps(job, 1);
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept.back() % what.every_steps, 0) << "the asked save was to be held up";
  EXPECT_TRUE(std::filesystem::exists(slow + "-1-tried")) << "it never began to save";
  const auto came_back = muster().until_state(stubborn, "succeeded");
  ASSERT_EQ(came_back.at("attempts").size(), 2U) << came_back.dump(1);
  EXPECT_EQ(text(attempt(came_back, 1), "cause"), "preempted") << text(attempt(came_back, 1), "reason");

  ASSERT_EQ(slurm().run({"scontrol", "update", "partitionname=low", "gracetime=0"}).exit, 0);
  muster().until(job, [&](const Json& view) {
    return view.at("attempts").size() == 2 && attempt(view, 2).at("resumed_from_step").is_number();
  });
  stage().until_trains(job, 2);
  slurm_cluster::submit(slurm(), {"-p", "high", "-N2", "--exclusive"}, "sleep 1");
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(slurm().run({"scontrol", "update", "partitionname=low", "gracetime=10"}).exit, 0);
  EXPECT_TRUE(std::filesystem::exists(slow + "-2-tried")) << "it never began to save";
  ASSERT_EQ(after.at("attempts").size(), 3U) << after.dump(1);
  for (const std::size_t number : {1, 2}) {
    EXPECT_EQ(text(attempt(after, number), "cause"), "preempted") << text(attempt(after, number), "reason");
    EXPECT_EQ(attempt(after, number + 1).at("resumed_from_step"), kept.back());
  }
  EXPECT_TRUE(stage().saved_steps(job, 2).empty());
  stage().expect_model_of_calm_run(job, what);
}

}  // namespace
}  // namespace story
