#include "controller/executors/slurm/node_check.h"

#include "tests/controller/executors/slurm/follow.h"

namespace executors::on_slurm {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr core::Time kSince(1'795'314'280s);

::slurm::Node node(const std::string& name, std::vector<std::string> states, const std::string& reason) {
  ::slurm::Node node;
  node.name = name;
  node.states = std::move(states);
  node.reason = reason;
  return node;
}

std::vector<std::string> lost(const std::vector<::slurm::Node>& nodes) {
  std::vector<std::string> told;
  for (const auto& fact : nodes_without_launch(nodes, kSince, {"n9"}, 1)) told.push_back(words(fact));
  return told;
}

TEST(LaunchFailure, ItsNodesAreThoseThatSlurmHasDrainedForItSince) {
  EXPECT_THAT(
      lost({node("n1", {"IDLE", "DRAIN"}, "Prolog error [root@1795314284]"),
            node("n2", {"IDLE", "DRAIN"}, "batch job complete failure [slurm@1795314280]"),
            node("n3", {"IDLE", "DRAIN"}, "Prolog error [root@1795314279]"),
            node("n4", {"IDLE", "DRAIN"}, "new disks [ada@1795314284]"), node("n5", {"IDLE"}, ""),
            node("n6", {"IDLE"}, "Prolog error [root@1795314284]"), node("n7", {"IDLE", "DRAIN"}, "Prolog error"),
            node("n8", {"IDLE", "DRAIN"}, "Prolog error [root@Unknown]"),
            node("n9", {"IDLE", "DRAIN"}, "Prolog error [root@1795314284]")}),
      ElementsAre("lost n1: Slurm could not start the job on it (Prolog error)",
                  "lost n2: Slurm could not start the job on it (batch job complete failure)"));
}

// The failure shows whether or not a listing had the run: by its end, or while a part on another node is ended.
TEST(LaunchFailure, OfARunThatSlurmHoldsIsANodeFailure) {
  Following never_seen;
  never_seen.job.restarts = 1;
  never_seen.slurm_says("PENDING", "launch failed requeued held").after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(never_seen.facts(), ElementsAre("gone node_failed"));
  EXPECT_TRUE(never_seen.attempt.wants_cancel(never_seen.now)) << "or it is held for ever";

  Following seen;
  seen.slurm_says("RUNNING");
  seen.job.restarts = 1;
  seen.slurm_says("COMPLETING", "launch failed requeued held");
  EXPECT_THAT(seen.facts(), ElementsAre("started node1 node2", "stopping node_failed"));
  seen.slurm_says("PENDING", "launch failed requeued held").after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(seen.facts(), ElementsAre("gone node_failed"));
}

// A slurmctld that lost its memory starts it again where it still runs.
TEST(LaunchFailure, OfARunWhoseRanksAllCameToLifeIsThatOfASecondRun) {
  Following both, one;
  both.slurm_says("RUNNING").task(0, running("node1")).task(1, running("node2")).facts();
  one.slurm_says("RUNNING").task(0, running("node1")).facts();
  for (auto* f : {&both, &one}) {
    f->job.restarts = 1;
    f->slurm_says("PENDING", "launch failed requeued held").after(SlurmAttempt::kFilePatience + 100ms);
    EXPECT_TRUE(f->attempt.wants_cancel(f->now));
  }
  EXPECT_THAT(both.reasons(), AllOf(Not(IsEmpty()), Each(HasSubstr("does not know any more that it runs"))));
  EXPECT_THAT(one.facts(), ElementsAre("stopping node_failed", "gone node_failed"));
}

}  // namespace
}  // namespace executors::on_slurm
