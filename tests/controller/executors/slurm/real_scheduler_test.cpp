// Goal: what our tests take for Slurm behaves as Slurm does.
// Method: the same contract as the fake's, on the real client and a private Slurm of one node.
#include "controller/executors/slurm/node_check.h"
#include "slurm/slurm_client.h"
#include "tests/controller/executors/slurm/scheduler_contract.h"
#include "tests/slurm_cluster/cluster.h"

namespace executors::on_slurm::testing {
namespace {

class RealWorld : public SchedulerWorld {
 public:
  ::slurm::Scheduler& slurm() override { return client_; }
  std::vector<std::string> command() const override {
    return {"bash", "-c",
            "while [ ! -s '" + word().string() + "' ]; do sleep 0.05; done; exit $(cat '" + word().string() + "')"};
  }
  void start(const ::slurm::JobId&) override {}
  void requeue(const ::slurm::JobId& id) override {
    const auto done = runner_.run({.argv = {"scontrol", "requeue", ::slurm::to_string(id)},
                                   .time_limit = std::chrono::seconds(10),
                                   .environment = {{"SLURM_CONF", cluster_.conf().string()}}});
    EXPECT_TRUE(done.succeeded()) << done.err;
  }
  void finish(int code) override { test::write_file(word(), std::to_string(code)); }

 private:
  std::filesystem::path word() const { return cluster_.folder() / "exit-with"; }

  slurm_cluster::Cluster cluster_{{.nodes = 1}};
  ::base::ProcessRunner runner_;
  ::slurm::Client client_{runner_, {.conf = cluster_.conf().string()}};
};

// Slurm names the second node's port alone: the first one's is that of the configuration.
TEST(RealNodes, AreFoundWhereTheirSlurmdsListen) {
  const slurm_cluster::Cluster cluster({.nodes = 2});
  ::base::ProcessRunner runner;
  ::slurm::Client client(runner, {.conf = cluster.conf().string()});
  const auto nodes = client.nodes();
  const auto config = client.config();
  ASSERT_TRUE(nodes && config);
  ASSERT_EQ(nodes->size(), 2U);
  EXPECT_FALSE(nodes->at(0).fields.contains("Port"));
  const std::map<std::string, bool> both{{"node1", true}, {"node2", true}};
  EXPECT_EQ(ask(*nodes, config->fields.at("SlurmdPort"), std::chrono::seconds(5)), both);
}

INSTANTIATE_TEST_SUITE_P(Real, SchedulerContract, ::testing::Values([]() -> std::unique_ptr<SchedulerWorld> {
                           return std::make_unique<RealWorld>();
                         }));

}  // namespace
}  // namespace executors::on_slurm::testing
