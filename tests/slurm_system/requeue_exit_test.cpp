// Goal: where Slurm itself requeues what exits with 99 (RequeueExit=99, as some sites have it), every cause and budget
// is the same as elsewhere: a program that always leaves with 99 is not started for ever.
// Method: a real Slurm with that line, whose partition low gives 10 s of grace and brisk none. A requeued job is held
// for two minutes, Slurm's own default, so that no second run hides what is looked at.
#include <fstream>

#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

constexpr const char* kBrisk =
    "PartitionName=brisk Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=0";
/// Commands of a victim that is told to leave.
constexpr const char* kSavesAtOnce = "exit 99";
constexpr const char* kTakesAWhile = "trap \"\" TERM; sleep 4; exit 99";

struct RequeueExit;
class SlurmRequeueExit : public Story<RequeueExit> {
 public:
  static void SetUpTestSuite() {
    set_up({.nodes = 2, .grace = 10s, .kill_wait = 8s, .cred_expire = 120s, .requeue_exit = true, .conf = {kBrisk}});
  }

 protected:
  /// It is content the second time.
  static std::string victim(const std::string& partition, const std::string& when_told) {
    const auto job =
        muster().submit(shell({.script = "trap '" + when_told + "' TERM; touch $MUSTER_ATTEMPT_FOLDER/ready-$RANK\n" +
                                         "[ $MUSTER_ATTEMPT = 2 ] || while :; do sleep 0.05; done",
                               .nodes = 2,
                               .more = "[slurm]\npartition = \"" + partition + "\"\nexclusive = true\n"}));
    stage().until_running(job, 1);
    const auto folder = muster().data() / "jobs" / job / "attempt-1";
    for (const char* mark : {"ready-0", "ready-1"}) {
      EXPECT_TRUE(test::eventually([&] { return std::filesystem::exists(folder / mark); }, 60s)) << mark;
    }
    return job;
  }
  static void expect_nothing_left_in_slurm() {
    EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 60s));
  }
};

TEST_F(SlurmRequeueExit, AProgramThatAlwaysLeavesWith99SpendsItsBudget) {
  const auto job = muster().submit(shell({.script = "exit 99", .requeue = "max_preempted = 2\n"}));
  const auto after = muster().until_state(job, "failed");
  ASSERT_EQ(after.at("attempts").size(), 3U) << after.dump(1);
  for (const std::size_t number : {1, 2, 3}) {
    EXPECT_EQ(text(attempt(after, number), "cause"), "preempted") << text(attempt(after, number), "reason");
    EXPECT_EQ(attempt(after, number).at("exit_code"), 99);
  }
  EXPECT_THAT(text(after, "reason"), HasSubstr("3 times without anything new in its checkpoint folder (limit 2)"));
  expect_nothing_left_in_slurm();
}

TEST_F(SlurmRequeueExit, ScontrolRequeueIsToldApartAndCostsNoBudget) {
  const auto job = victim("main", kSavesAtOnce);
  ASSERT_EQ(slurm().run({"scontrol", "requeue", stage().slurm_job(job, 1)}).exit, 0);
  const auto after = muster().until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "requeued") << text(attempt(after, 1), "reason");
  EXPECT_THAT(stage().events(job), testing::Not(HasSubstr(" of 1000)"))) << "it is nobody's fault";
  expect_nothing_left_in_slurm();
}

// Within its grace it is faster, perhaps, than anybody asks Slurm why; without, Slurm says so only while it leaves.
TEST_F(SlurmRequeueExit, AVictimWasPreemptedWithGraceOrWithout) {
  for (const auto& [partition, when_told] : {std::pair{"low", kSavesAtOnce}, {"brisk", kTakesAWhile}}) {
    SCOPED_TRACE(partition);
    const auto job = victim(partition, when_told);
    slurm_cluster::submit(slurm(), {"-p", "high", "-N2", "--exclusive"}, "sleep 1");
    const auto after = muster().until_state(job, "succeeded");
    ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
    EXPECT_EQ(text(attempt(after, 1), "cause"), "preempted") << text(attempt(after, 1), "reason");
    EXPECT_THAT(stage().events(job), HasSubstr("preemption 1 of 1000"));
  }
  expect_nothing_left_in_slurm();
}

TEST_F(SlurmRequeueExit, WhatLeftWith99WhileMusterdWasAwayIsCountedToo) {
  const auto go = muster().data() / "go";
  const auto job = muster().submit(shell(
      {.script = "[ $MUSTER_ATTEMPT = 2 ] && exit 0; until [ -e " + go.string() + " ]; do sleep 0.1; done; exit 99"}));
  stage().until_running(job, 1);
  const auto id = stage().slurm_job(job, 1);
  muster().kill_daemon();
  std::ofstream(go) << "now";
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), id, "RestartCnt", "1"));
  muster().start_daemon();
  const auto after = muster().until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "preempted") << text(attempt(after, 1), "reason");
  EXPECT_EQ(attempt(after, 1).at("exit_code"), 99);
  expect_nothing_left_in_slurm();
}

}  // namespace
}  // namespace story
