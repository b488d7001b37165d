// Goal: the private cluster is a real Slurm, configured as its options say.
// Method: jobs submitted with Slurm's own commands; what they print and what squeue and sacct say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/slurm_cluster/world.h"

namespace slurm_cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(SlurmCluster, GivesEachTaskItsOwnGpuAndEachNodeItsOwnName) {
  const Cluster cluster({.nodes = 2});
  const auto done = cluster.run({"srun", "-N2", "--ntasks-per-node=2", "--gpus-per-task=1", "bash", "-c",
                                 "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"});
  EXPECT_THAT(sorted_lines(done.out), ElementsAre("node1 0", "node1 1", "node2 0", "node2 1")) << done.err;
  if (!cluster.has_namespaces()) return;
  EXPECT_THAT(sorted_lines(cluster.run({"srun", "-N2", "hostname"}).out), ElementsAre("node1", "node2"));
}

TEST(SlurmCluster, HighPreemptsLowByRequeueAndSparesMain) {
  const Cluster cluster({.nodes = 2, .kill_wait = 1s});
  const auto on = [](const std::string& partition) {
    return std::vector<std::string>{"-p", partition, "-N1", "--exclusive", "--requeue"};
  };
  const auto spared = submit(cluster, on("main"), "exec sleep 600");
  ASSERT_TRUE(becomes(cluster, spared, "State", "RUNNING"));
  const auto victim = submit(cluster, on("low"), "exec sleep 600");
  ASSERT_TRUE(becomes(cluster, victim, "State", "RUNNING"));
  const auto urgent = submit(cluster, on("high"), "exec sleep 600");
  ASSERT_TRUE(becomes(cluster, urgent, "State", "RUNNING"));
  EXPECT_TRUE(becomes(cluster, victim, "State", "PENDING"));
  EXPECT_EQ(field(cluster, victim, "RestartCnt"), "1");
  EXPECT_EQ(field(cluster, spared, "State"), "RUNNING");
  EXPECT_EQ(field(cluster, spared, "RestartCnt"), "0");
}

TEST(SlurmCluster, GraceIsWhatALowJobKeeps) {
  const Cluster cluster({.nodes = 1, .grace = 40s});
  const auto victim =
      submit(cluster, {"-p", "low", "--exclusive"}, "srun bash -c 'trap : TERM; while :; do sleep 0.1; done'");
  ASSERT_TRUE(becomes(cluster, victim, "State", "RUNNING"));
  const auto urgent = submit(cluster, {"-p", "high", "--exclusive"}, "true");
  ASSERT_TRUE(test::eventually([&] { return field(cluster, victim, "PreemptTime") != "N/A"; }, 20s));
  EXPECT_EQ(time_of(field(cluster, victim, "EndTime")) - time_of(field(cluster, victim, "PreemptTime")), 40s);
  EXPECT_TRUE(becomes(cluster, victim, "State", "RUNNING", 20s)) << "SIGNALING for a moment, then it runs on";
  EXPECT_EQ(field(cluster, urgent, "State"), "PENDING");
}

TEST(SlurmCluster, RequeueExitIsOffUnlessAskedFor) {
  for (const bool on : {false, true}) {
    const Cluster cluster({.nodes = 1, .requeue_exit = on});
    const auto job = submit(cluster, {"--requeue"}, "exit 99");
    EXPECT_TRUE(on ? becomes(cluster, job, "RestartCnt", "1") : becomes(cluster, job, "State", "FAILED"));
  }
}

TEST(SlurmCluster, NodeNamesResolveOnNodesUnlessToldNotTo) {
  for (const bool resolvable : {true, false}) {
    const Cluster cluster({.nodes = 2, .unresolvable_names = !resolvable});
    if (!cluster.has_namespaces()) GTEST_SKIP() << "node names of their own need namespaces, and those root";
    const auto done = cluster.run({"srun", "-w", "node1", "getent", "hosts", "node2"});
    EXPECT_EQ(done.exit == 0, resolvable) << done.out << done.err;
  }
  EXPECT_NE(test::run({"/usr/bin/getent", "hosts", "node2"}, {}, 20s).exit, 0)
      << "the machine itself never resolves them";
}

TEST(SlurmCluster, AccountingRemembersHowAJobEnded) {
  const Cluster cluster({.nodes = 1, .accounting = true});
  const auto job = submit(cluster, {"--comment", "muster:s:1.1"}, "exit 7");
  std::string seen;
  EXPECT_TRUE(test::eventually(
      [&] {
        seen = cluster.run({"sacct", "-X", "-n", "-P", "-j", job, "-o", "State,ExitCode"}).out;
        return seen == "FAILED|7:0\n";
      },
      20s))
      << seen;
}

TEST(SlurmCluster, ServesBesideAnotherOne) {
  const Cluster first({.nodes = 1});
  const Cluster second({.nodes = 3});
  const auto job = submit(first, {"--comment", "of the first"}, "exec sleep 600");
  ASSERT_TRUE(becomes(first, job, "State", "RUNNING"));
  EXPECT_EQ(second.run({"squeue", "--noheader"}).out, "");
  EXPECT_EQ(sorted_lines(second.run({"sinfo", "-h", "-N", "-p", "main", "-o", "%N %t"}).out),
            (std::vector<std::string>{"node1 idle", "node2 idle", "node3 idle"}));
}

TEST(SlurmCluster, RefusesWhatCannotBecomeACluster) {
  try {
    const Cluster cluster({.nodes = 0});
    FAIL() << "zero nodes were accepted";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("--nodes 0: from 1 to 200"));
  }
  try {
    const Cluster cluster({.nodes = 1, .conf = {"ThisIsNoKey=1"}});
    FAIL() << "a wrong slurm.conf was accepted";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("slurmctld ended by itself"));
    EXPECT_THAT(e.what(), HasSubstr("ThisIsNoKey")) << "the daemon's own words belong into the message";
  }
}

}  // namespace
}  // namespace slurm_cluster
