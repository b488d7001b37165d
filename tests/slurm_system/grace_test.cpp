// Goal: a victim that uses its grace period to save always comes back, though Slurm calls it COMPLETED.
// Method: a real Slurm whose low partition gives 10 s; a high job takes the nodes; the judge is an uninterrupted run.
#include "slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct Grace;
class SlurmGrace : public Story<Grace> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2, .grace = 10s}); }
};

TEST_F(SlurmGrace, AVictimThatSavedInTimeComesBack) {
  const Training what{.partition = "low"};
  const auto job = muster().submit(training(what));
  muster().until_step(job, 24);
  const auto victim = stage().slurm_job(job, 1);
  slurm_cluster::submit(slurm(), {"-p", "high", "-N2", "--exclusive"}, "sleep 2");
  const auto after = muster().until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "preempted") << text(attempt(after, 1), "reason");
  EXPECT_THAT(stage().events(job), HasSubstr("preemption 1 of 1000"));
  EXPECT_NE(slurm_cluster::field(slurm(), victim, "State"), "PREEMPTED") << "it was gone before the period was over";
  const auto saved = stage().saved_steps(job, 1);
  ASSERT_FALSE(saved.empty());
  EXPECT_GE(saved.back(), 24) << "saved when it was told, not at its next turn";
  EXPECT_EQ(attempt(after, 2).at("resumed_from_step"), saved.back());
  EXPECT_EQ(stage().submissions_of(job, 1), 1);
  EXPECT_EQ(stage().submissions_of(job, 2), 1);
  stage().expect_model_of_calm_run(job, what);
}

// It knows nothing of signals, so it is still there when the period is over.
TEST_F(SlurmGrace, AStubbornVictimIsPreemptedAllTheSame) {
  const auto job =
      muster().submit(shell({.script = "trap '' TERM; [ $MUSTER_ATTEMPT = 2 ] || while :; do sleep 1; done",
                             .nodes = 2,
                             .resources = "stop_grace = \"2m\"\n",
                             .more = "[slurm]\npartition = \"low\"\nexclusive = true\n"}));
  stage().until_running(job, 1);
  slurm_cluster::submit(slurm(), {"-p", "high", "-N2", "--exclusive"}, "sleep 1");
  const auto after = muster().until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "preempted") << text(attempt(after, 1), "reason");
}

}  // namespace
}  // namespace story
