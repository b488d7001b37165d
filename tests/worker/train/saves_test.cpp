// Goal: a run that saves beside its training trains as one that does not, and all ranks learn of a failure at one step.
// Method: Trainers in this process, one thread per rank, with saves that are held or fenced in the middle.
#include "worker/train/saves.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>

#include "tests/worker/temporary_folder.h"
#include "tests/worker/trainer_ranks.h"

namespace worker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RunConfig run_beside(const TemporaryFolder& folder, const std::string& checkpoints, bool beside) {
  RunConfig config = run_of(folder, R"(,"steps":7)", "", checkpoints);
  config.checkpoint.every_steps = 2;
  config.checkpoint.keep = 2;
  config.checkpoint.asynchronous = beside;
  return config;
}

TEST(SavesBesideTheTraining, ChangeNoBitOfIt) {
  const TemporaryFolder folder;
  std::vector<Listener> without(2), with(2), after(2);
  train(run_beside(folder, "a", false), without);
  RunConfig config = run_beside(folder, "b", true);
  train(config, with);
  ASSERT_EQ(with[0].steps.size(), 7u);
  for (std::size_t i = 0; i < with[0].steps.size(); ++i)
    EXPECT_EQ(with[0].steps[i].values.front().value, without[0].steps[i].values.front().value) << "step " << i + 1;
  for (const Listener& rank : with) EXPECT_THAT(rank.saved, ElementsAre(2, 4, 6, 7));
  EXPECT_FALSE(std::filesystem::exists(folder / "b/step-00000004")) << "two are kept";
  config.train.steps = 9;
  train(config, after, 2);
  EXPECT_THAT(numbers(after[0].steps), ElementsAre(8, 9));
}

// Goal: ranks train on while a checkpoint is on its way to the disk.
// Method: the rename of step 2 waits until rank 0 has reported step 4. A save that stops the training would never end.
TEST(SavesBesideTheTraining, LeaveItRunning) {
  const TemporaryFolder folder;
  std::promise<void> reached;
  bool in_time = false;
  before_rename = [&](const std::string& to) {
    if (to.ends_with("/step-00000002"))
      in_time = reached.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  };
  std::vector<Listener> ranks(2);
  ranks[0].on_step = [&] {
    EXPECT_EQ(ranks[0].saved.empty(), ranks[0].steps.size() <= 4u) << "it is told when it is on disk";
    if (ranks[0].steps.size() == 4) reached.set_value();
  };
  train(run_beside(folder, "checkpoints", true), ranks);
  before_rename = nullptr;
  EXPECT_TRUE(in_time);
  EXPECT_THAT(ranks[0].saved, ElementsAre(2, 4, 6, 7));
}

TEST(SavesBesideTheTraining, EndAFencedRunOnAllRanksAtTheSameStep) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  std::vector<std::string> failures(2);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    ranks[i].on_failure = [&failures, i](const std::string& text) { failures[i] = text; };
  ranks[0].on_step = [&] {
    if (ranks[0].steps.size() == 2) write_file(folder / "checkpoints/FENCE", "attempt 2\n");
  };
  train(run_beside(folder, "checkpoints", true), ranks);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_THAT(failures[i], HasSubstr("attempt 2 owns this job now"));
    EXPECT_THAT(numbers(ranks[i].steps), ElementsAre(1, 2, 3, 4)) << "where the next save would begin";
    EXPECT_TRUE(ranks[i].saved.empty());
  }
}

}  // namespace
}  // namespace worker::testing
