// Goal: what befalls a job from its node or from its script's own lines is told as what it is: an admin takes the node
// down, somebody stops the whole step, Slurm suspends the job, setup lines end the script.
// Method: real Slurm, on which a node that is down stays down until an admin resumes it; signals to ranks and tasks.
#include <signal.h>

#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct Node;
class SlurmNode : public Story<Node> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2, .conf = {"ReturnToService=1"}}); }

 protected:
  static bool is_left_out(const std::string& node) {
    for (const auto& listed : muster().json({"nodes"})) {
      if (listed.at("name") == node) return !listed.at("excluded_until").is_null();
    }
    ADD_FAILURE() << "no node " << node;
    return false;
  }
};

TEST_F(SlurmNode, ANodeThatAnAdminTakesDownIsANodeFailureWithItsReason) {
  const auto job = muster().submit(shell({.script = "[ $MUSTER_ATTEMPT -gt 1 ] || sleep 600"}));
  stage().until_running(job, 1);
  const auto node = stage().node_of_rank(job, 0);
  ASSERT_EQ(slurm().run({"scontrol", "update", "nodename=" + node, "state=down", "reason=bad fan"}).exit, 0);
  const auto ended = stage().until_ended(job, 1);
  EXPECT_EQ(text(attempt(ended, 1), "cause"), "node_failed");
  EXPECT_THAT(text(attempt(ended, 1), "reason"), HasSubstr(node + " is down (bad fan)"));
  muster().until_state(job, "succeeded");
  slurm().run({"scontrol", "update", "nodename=" + node, "state=resume"});
}

// To muster it is as silent as a node without power: nobody is heard who could tell what has happened.
TEST_F(SlurmNode, AStepThatSomebodyStopsIsSilentAndItsNodeIsNotLeftOut) {
  const auto job =
      muster().submit(training({.steps = 2000,
                                .nodes = 1,
                                .ranks_per_node = 2,
                                .more = "[liveness]\nsilent_after_vouched = \"5s\"\nlost_after = \"5s\"\n"}));
  stage().until_trains(job, 1);
  const auto node = stage().node_of_rank(job, 0);
  for (const int rank : {0, 1}) {
    for (const pid_t pid : {stage().pid_of_task(job, 1, rank), stage().pid_of_rank(job, 1, rank)}) {
      ASSERT_GT(pid, 1);
      ASSERT_EQ(::kill(pid, SIGSTOP), 0);
    }
  }
  const auto ended = stage().until_ended(job, 1);
  EXPECT_EQ(text(attempt(ended, 1), "cause"), "rank_silent");
  EXPECT_THAT(text(attempt(ended, 1), "reason"), HasSubstr("the node answers"));
  EXPECT_FALSE(is_left_out(node));
  stage().until_running(job, 2);
}

TEST_F(SlurmNode, AJobThatIsSuspendedIsSaidToBeSoWhereverItIsShown) {
  const auto job = muster().submit(shell({.script = "sleep 600"}));
  stage().until_running(job, 1);
  const auto number = stage().slurm_job(job, 1);
  ASSERT_EQ(slurm().run({"scontrol", "suspend", number}).exit, 0);
  const auto reason = [&] { return text(muster().show(job), "reason"); };
  const auto says = [&] { return reason().find("suspended in Slurm since") != std::string::npos; };
  EXPECT_TRUE(test::eventually(says, 60s)) << reason();
  EXPECT_THAT(muster().cli({"why", job}).out, HasSubstr("scontrol resume " + number));
  EXPECT_THAT(muster().cli({"list"}).out, HasSubstr("suspended in Slurm"));
  ASSERT_EQ(slurm().run({"scontrol", "resume", number}).exit, 0);
  EXPECT_TRUE(test::eventually([&] { return !says(); }, 60s)) << reason();
  EXPECT_EQ(muster().show(job).at("attempts").size(), 1U);
}

TEST_F(SlurmNode, SetupLinesThatEndTheScriptAreTheReason) {
  for (const char* line : {"exit 0", "cat << NEVER_ENDS"}) {
    const auto job = muster().submit(shell(
        {.script = "true", .requeue = "max_failed = 0\n", .more = "[slurm]\nsetup = ['" + std::string(line) + "']\n"}));
    const auto after = muster().until_state(job, "failed");
    EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("its setup lines ended the script before any rank"))
        << line;
  }
}

struct Astray;
class SlurmAstray : public Story<Astray> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 1}, {"--advertise", "no-such-host.invalid:7600"}); }
};

// They would wait for half an hour, and to Slurm the job runs.
TEST_F(SlurmAstray, RanksThatCannotFindMusterdAreToldWithTheRemedy) {
  EXPECT_THAT(muster().daemon_log(), HasSubstr("this machine knows no \"no-such-host.invalid\""));
  const auto findings = Json::parse(muster().cli({"doctor", "--json"}).out).dump();
  EXPECT_THAT(findings, HasSubstr("--advertise HOST:PORT"));
  EXPECT_EQ(findings.find("musterd runs as root") != std::string::npos, acting_user().empty() && ::geteuid() == 0);
  const auto job = muster().submit(shell({.script = "true", .ranks_per_node = 2}));
  stage().until_running(job, 1);
  Json why;
  EXPECT_TRUE(test::eventually(
      [&] {
        why = muster().json({"why", job});
        return text(why, "reason").find("none of its ranks has been heard in ") != std::string::npos;
      },
      30s))
      << why.dump(1);
  EXPECT_THAT(text(why, "action"), HasSubstr("Ranks look for musterd at no-such-host.invalid:7600"));
  EXPECT_TRUE(test::eventually(
      [&] {
        return muster().cli({"logs", job, "--slurm"}).out.find("no-such-host.invalid:7600 does not answer on node1") !=
               std::string::npos;
      },
      30s));
  muster().cli({"cancel", job});
  muster().until_state(job, "cancelled");
}

}  // namespace
}  // namespace story
