// Goal: on Slurm, too, a data folder that stands still ends no training, costs no budget and no node, and what ended
// meanwhile is told as it ended.
// Method: one real Slurm and a musterd for each time, each on an ext4 of its own, all frozen at once. A minute and
// three are a long test. Slurm's own files lie elsewhere.
#include "tests/slurm_cluster/cluster.h"
#include "tests/system/freeze_stories.h"

namespace story {
namespace {

using namespace std::chrono_literals;

class SlurmFreeze : public testing::Test {
 protected:
  static void stand_still_for(const std::vector<std::chrono::seconds>& times) {
    test::LoopDisks disks(times.size());  // before the nodes, which see the mounts that there are when they start
    if (!disks.why_not().empty()) GTEST_SKIP() << disks.why_not();
    const slurm_cluster::Cluster slurm({.nodes = static_cast<int>(times.size())});
    test::stand_still(disks, times, {.daemon_flags = {"--slurm", "yes"}, .daemon_environment = slurm.env()});
  }
};

TEST_F(SlurmFreeze, EndsNoTrainingAndCostsNoBudget) {
  stand_still_for({20s});
}

TEST_F(SlurmFreeze, ForMinutesEndsNoTrainingAndCostsNoBudget) {
  stand_still_for({60s, 180s});
}

}  // namespace
}  // namespace story
