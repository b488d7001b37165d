// Goal: a data folder that stands still, for as long as a file server takes to fail over, ends no training and costs no
// budget; what ended meanwhile is told as it ended, and no metric is missing.
// Method: real musterds and ranks, local processes, each on an ext4 of its own that is frozen. A minute and three run
// beside each other, in a long test. They wait, and compute little.
#include <signal.h>

#include <thread>

#include "tests/system/freeze_stories.h"

namespace test {
namespace {

void stand_still_for(const std::vector<std::chrono::seconds>& times) {
  LoopDisks disks(times.size());
  if (!disks.why_not().empty()) GTEST_SKIP() << disks.why_not();
  stand_still(disks, times, {});
}

TEST(FrozenDisk, EndsNoTrainingAndCostsNoBudget) {
  stand_still_for({20s});
}

TEST(FrozenDisk, ForMinutesEndsNoTrainingAndCostsNoBudget) {
  stand_still_for({60s, 180s});
}

// Its end is known by its signal, though nobody could write it down for 30 s.
TEST(FrozenDisk, ARankThatIsKilledMeanwhileIsKnownByItsSignal) {
  TemporaryFolder folder;
  LoopDisk disk(folder.path() / "disk");
  if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  World world({.data = disk.where() / "data"});
  const Thawed thawed(disk);
  world.start_daemon();
  constexpr int kSteps = 60;
  const auto job = world.submit(training_job({.steps = kSteps, .every_steps = 5, .step_delay_ms = 100}));
  const auto before = world.until_step(job, 12);
  disk.freeze();
  std::this_thread::sleep_for(2s);
  signal_rank(before, 1, SIGKILL);
  std::this_thread::sleep_for(28s);
  disk.thaw();
  const auto after = world.until_state(job, "succeeded", 120s);
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  const auto& lost = after.at("attempts").at(0);
  EXPECT_EQ(lost.at("cause"), "failed");
  EXPECT_NE(lost.at("reason").get<std::string>().find("rank 1 killed by SIGKILL"), std::string::npos) << after.dump(1);
}

}  // namespace
}  // namespace test
