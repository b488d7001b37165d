// Goal: the faults of the private cluster are the real ones.
// Method: jobs that would run on; a fault; what is left of their processes, and what Slurm makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/slurm_cluster/world.h"

namespace slurm_cluster {
namespace {

constexpr auto kMark =
    "MUSTER_TEST_TASK_OF_";  // in the environment of a job's tasks, together with the cluster's folder

std::string task_script(const std::string& name) {
  return "export " + std::string(kMark) + name + "=$SLURM_CONF\nsrun sleep 600";
}

std::vector<pid_t> tasks_of(const Cluster& cluster, const std::string& name) {
  std::vector<pid_t> tasks;
  for (const auto pid : processes_of(cluster.folder(), "sleep")) {
    const auto environment = test::read_file("/proc/" + std::to_string(pid) + "/environ");
    if (environment.find(kMark + name) != std::string::npos) tasks.push_back(pid);
  }
  return tasks;
}

bool tasks_become(const Cluster& cluster, const std::string& name, std::size_t count) {
  return test::eventually([&] { return tasks_of(cluster, name).size() == count; }, 20s);
}

TEST(SlurmCluster, APowerCutEndsAllOfANodeAndNothingElse) {
  const Cluster cluster({.nodes = 2, .slurmd_timeout = 10s});
  if (!cluster.has_namespaces()) GTEST_SKIP() << "a power cut needs nodes in namespaces, and those need root";
  const auto lost = submit(cluster, {"-w", "node2", "--no-requeue"}, task_script("lost"));
  const auto other = submit(cluster, {"-w", "node1"}, task_script("other"));
  ASSERT_TRUE(tasks_become(cluster, "lost", 1));
  ASSERT_TRUE(tasks_become(cluster, "other", 1));
  cluster.power_cut("node2");
  EXPECT_EQ(field(cluster, lost, "State"), "RUNNING") << "Slurm knows after its timeout, not before";
  EXPECT_EQ(tasks_of(cluster, "lost").size(), 0U);
  EXPECT_TRUE(cluster.stepd_pids("node2", lost).empty());
  EXPECT_EQ(tasks_of(cluster, "other").size(), 1U);
  EXPECT_TRUE(becomes(cluster, lost, "State", "NODE_FAIL", 60s));
  EXPECT_EQ(field(cluster, other, "State"), "RUNNING");
  cluster.power_on("node2");
  EXPECT_EQ(cluster.run({"srun", "-w", "node2", "hostname"}).out, "node2\n");
}

TEST(SlurmCluster, SlurmctldKilledAndStartedAgainKnowsItsJobs) {
  const Cluster cluster({.nodes = 1});
  const auto job = submit(cluster, {"--comment", "muster:s:1.1"}, task_script("kept"));
  ASSERT_TRUE(tasks_become(cluster, "kept", 1));
  // An orderly end writes the state; after it a crash finds the job on disk.
  cluster.stop_ctld();
  cluster.start_ctld();
  cluster.kill_ctld();
  EXPECT_NE(cluster.run({"scontrol", "ping"}).exit, 0);
  EXPECT_EQ(tasks_of(cluster, "kept").size(), 1U);
  cluster.start_ctld();
  EXPECT_EQ(field(cluster, job, "State"), "RUNNING");
  EXPECT_EQ(field(cluster, job, "Comment"), "muster:s:1.1");
  EXPECT_THROW(cluster.start_ctld(), std::runtime_error);
}

TEST(SlurmCluster, AKilledStepdLeavesItsTask) {
  const Cluster cluster({.nodes = 2});
  const auto job = submit(cluster, {"-N2"}, task_script("orphan"));
  ASSERT_TRUE(tasks_become(cluster, "orphan", 2));
  const auto before = cluster.stepd_pids("node2", job);
  ASSERT_EQ(before.size(), 1U) << "node2 has the step, node1 the step and the batch script";
  EXPECT_EQ(cluster.stepd_pids("node1", job).size(), 2U);
  EXPECT_EQ(cluster.kill_stepd("node2", job), before);
  EXPECT_TRUE(test::eventually([&] { return cluster.stepd_pids("node2", job).empty(); }, 5s));
  EXPECT_EQ(cluster.stepd_pids("node1", job).size(), 2U);
  EXPECT_EQ(tasks_of(cluster, "orphan").size(), 2U);
  EXPECT_THROW(cluster.kill_stepd("node2", "999999"), std::runtime_error);
}

TEST(SlurmCluster, ANetworkCutSeparatesANodeThatLivesOn) {
  const Cluster shared({.nodes = 1});
  EXPECT_THROW(shared.cut_network("node1"), std::runtime_error);
  if (!shared.has_namespaces()) GTEST_SKIP() << "a network of its own needs root";
  const Cluster cluster({.nodes = 2, .slurmd_timeout = 3s, .separate_network = true});
  EXPECT_NE(cluster.host_address(), "127.0.0.1");
  const auto reach = std::vector<std::string>{"srun", "-w", "node1", "bash", "-c", "exec 3<>/dev/tcp/node2/6818"};
  ASSERT_EQ(cluster.run(reach).exit, 0);
  const auto job = submit(cluster, {"-w", "node2", "--no-requeue"}, task_script("cut"));
  ASSERT_TRUE(tasks_become(cluster, "cut", 1));
  cluster.cut_network("node2");
  EXPECT_NE(cluster.run({"srun", "-w", "node1", "timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/node2/6818"}).exit, 0);
  EXPECT_TRUE(becomes(cluster, job, "State", "NODE_FAIL", 40s));
  EXPECT_EQ(tasks_of(cluster, "cut").size(), 1U) << "its tasks do not know";
  cluster.mend_network("node2");
  EXPECT_TRUE(test::eventually([&] { return cluster.run(reach).exit == 0; }, 20s));
  EXPECT_TRUE(tasks_become(cluster, "cut", 0)) << "back on the network, slurmd ends what Slurm gave up";
}

}  // namespace
}  // namespace slurm_cluster
