// Goal: on Slurm, too, a data folder that stands still ends no training, costs no budget and no node, and what ended
// meanwhile is told as it ended.
// Method: one real Slurm and three musterds, each on an ext4 of its own that is frozen, for 20, 60 and 180 s at once.
// Slurm's own files lie elsewhere.
#include "slurm_cluster/cluster.h"
#include "system/freeze_stories.h"

namespace story {
namespace {

class SlurmFreeze : public testing::Test {};

TEST_F(SlurmFreeze, EndsNoTrainingAndCostsNoBudget) {
  test::LoopDisks disks(3);  // before the nodes, which see the mounts that there are when they start
  if (!disks.why_not().empty()) GTEST_SKIP() << disks.why_not();
  const slurm_cluster::Cluster slurm({.nodes = 3});
  test::stand_still(disks, {.daemon_flags = {"--slurm", "yes"}, .daemon_environment = slurm.env()});
}

}  // namespace
}  // namespace story
