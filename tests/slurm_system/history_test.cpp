// Goal: what only accounting remembers is told as it was: what became of a job while musterd was away, though Slurm's
// list has forgotten it; and who cancelled it.
// Method: real Slurm with accounting, which forgets ended jobs after seconds; musterd is killed, something happens to
// the job, and musterd comes back when squeue does not tell it any more. A plain scancel while it runs.
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct History;
class SlurmHistory : public Story<History> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2, .min_job_age = 2s, .accounting = true}); }

 protected:
  static std::string running_job(const std::string& partition, const std::string& requeue = {}) {
    const auto job = muster().submit(shell({.script = "sleep 600",
                                            .nodes = 2,
                                            .resources = "stop_grace = \"2s\"\n",
                                            .requeue = requeue,
                                            .more = "[slurm]\npartition = \"" + partition + "\"\n"}));
    stage().until_running(job, 1);
    return job;
  }
  static bool is_forgotten(const std::string& id) {
    return test::eventually([&] { return slurm_cluster::field(slurm(), id, "State").empty(); }, 60s);
  }
};

TEST_F(SlurmHistory, AJobThatWaitsAgainWasPreemptedWhileNobodyLooked) {
  const auto job = running_job("low");
  const auto id = stage().slurm_job(job, 1);
  muster().kill_daemon();
  const auto winner = slurm_cluster::submit(slurm(), {"-p", "high", "-N2", "--exclusive"}, "sleep 600");
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), winner, "State", "RUNNING"));
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), id, "State", "PENDING"));
  EXPECT_EQ(slurm_cluster::field(slurm(), id, "PreemptTime"), "N/A") << "otherwise squeue would tell it";
  muster().start_daemon();
  const auto after = stage().until_ended(job, 1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "preempted") << text(attempt(after, 1), "reason");
  EXPECT_EQ(muster().cli({"cancel", job}).exit, 0);
}

TEST_F(SlurmHistory, AJobThatIsNotListedAnyMoreWasCancelledBySomebody) {
  const auto job = running_job("main");
  const auto id = stage().slurm_job(job, 1);
  muster().kill_daemon();
  ASSERT_EQ(slurm().run({"scancel", id}).exit, 0);
  ASSERT_TRUE(is_forgotten(id));
  muster().start_daemon();
  const auto after = muster().until_state(job, "cancelled");
  EXPECT_EQ(text(attempt(after, 1), "cause"), "cancelled");
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("cancelled in Slurm by root, not through muster"));
}

TEST_F(SlurmHistory, WhoCancelledAJobIsToldWhileMusterdRuns) {
  const auto running = running_job("main");
  ASSERT_EQ(slurm().run({"scancel", stage().slurm_job(running, 1)}).exit, 0);
  const auto queued = muster().submit(shell({.script = "true", .more = "[slurm.options]\nbegin = \"now+1hour\"\n"}));
  muster().until_state(queued, "queued");
  ASSERT_EQ(slurm().run({"scancel", stage().slurm_job(queued, 1)}).exit, 0);
  for (const auto& job : {running, queued}) {
    const auto after = muster().until_state(job, "cancelled");
    EXPECT_EQ(text(attempt(after, 1), "reason"), "cancelled in Slurm by root, not through muster");
  }
}

}  // namespace
}  // namespace story
