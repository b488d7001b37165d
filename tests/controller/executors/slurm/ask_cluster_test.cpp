// Facts that Slurm tells of its partitions and nodes, as admins' policies are compared with them.
#include "controller/executors/slurm/slurm_executor.h"

#include <gtest/gtest.h>

#include "tests/controller/executors/slurm/fake_scheduler.h"

namespace executors::on_slurm {
namespace {

using namespace std::chrono_literals;

class Describing : public testing::FakeScheduler {
 public:
  ::slurm::Answer<std::vector<::slurm::Partition>> partitions() override {
    if (!lists) return ::slurm::Unreachable{"scontrol: no controller"};
    return std::vector{partition};
  }
  ::slurm::Answer<std::vector<::slurm::Node>> nodes() override {
    if (!lists || !lists_nodes) return ::slurm::Unreachable{"scontrol: no nodes"};
    return std::vector{node};
  }
  ::slurm::Partition partition;
  ::slurm::Node node;
  bool lists_nodes = true;
};

TEST(ClusterFacts, HoldWhatPoliciesAreComparedWith) {
  Describing slurm;
  slurm.partition = {.name = "low",
                     .state = "UP",
                     .is_default = true,
                     .node_list = "n[1-4]",
                     .total_nodes = 4,
                     .total_cpus = 32,
                     .max_time = 2h,
                     .default_time = 30min,
                     .max_nodes = 3,
                     .allow_groups = {"lab"},
                     .allow_accounts = {"physics"},
                     .allow_qos = {"normal"},
                     .priority_tier = 5,
                     .preempt_mode = "REQUEUE",
                     .grace = 10s};
  const auto facts = ask_cluster(slurm);
  EXPECT_EQ(facts.unreachable, "");
  ASSERT_EQ(facts.partitions.size(), 1U);
  PartitionFacts low;
  low.name = "low", low.state = "UP", low.node_list = "n[1-4]", low.preempt_mode = "REQUEUE";
  low.is_default = true;
  low.nodes = 4, low.cpus = 32, low.priority_tier = 5;
  low.max_time = 2h, low.default_time = 30min, low.grace = 10s;
  low.max_nodes = 3;
  low.allow_groups = {"lab"}, low.allow_accounts = {"physics"}, low.allow_qos = {"normal"};
  EXPECT_EQ(facts.partitions[0], low);
}

TEST(ClusterFacts, TellOfANodeWhatItHasWhatIsUsedAndWhetherItTakesJobs) {
  Describing slurm;
  slurm.partition.name = "low";
  slurm.node = {.name = "n1",
                .states = {"MIXED", "DRAIN"},
                .responds = false,
                .reason = "power supply",
                .cpus = 8,
                .cpus_used = 2,
                .memory_mib = 1024,
                .memory_used_mib = 512,
                .gres = "gpu:2",
                .tres_used = "cpu=2,gres/gpu=1,mem=512M",
                .partitions = {"low"}};
  const auto facts = ask_cluster(slurm);
  ASSERT_EQ(facts.nodes.size(), 1U);
  NodeFacts n1;
  n1.name = "n1", n1.state = "MIXED+DRAIN*", n1.reason = "power supply";
  n1.usable = false;
  n1.cpus = 8, n1.cpus_used = 2;
  n1.memory_bytes = 1 << 30, n1.memory_used_bytes = 1 << 29;
  n1.gres = "gpu:2", n1.gres_used = "gpu=1";
  n1.partitions = {"low"};
  EXPECT_EQ(facts.nodes[0], n1);
  slurm.node.states = {"IDLE"};
  slurm.node.responds = true;
  EXPECT_TRUE(ask_cluster(slurm).nodes[0].usable);
}

TEST(ClusterFacts, SayWhyTheyAreMissing) {
  Describing slurm;
  slurm.partition.name = "low";
  slurm.lists_nodes = false;
  EXPECT_EQ(ask_cluster(slurm).unreachable, "scontrol: no nodes");
  EXPECT_TRUE(ask_cluster(slurm).known()) << "its partitions are told all the same";
  slurm.lists = false;
  EXPECT_EQ(ask_cluster(slurm).unreachable, "scontrol: no controller");
  EXPECT_FALSE(ask_cluster(slurm).known());
}

}  // namespace
}  // namespace executors::on_slurm
