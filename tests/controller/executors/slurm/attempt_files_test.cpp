#include "controller/executors/slurm/attempt_files.h"

#include <gtest/gtest.h>

#include "agent/protocol/facts.h"
#include "spec/exit_codes.h"
#include "tests/temporary_folder.h"

namespace executors::on_slurm {
namespace {

TEST(LogWords, TheLineThatSaysWhyIsQuoted) {
  EXPECT_EQ(telling_line("slurmstepd: error: execve(): /opt/muster-agent: No such file or directory\n"
                         "srun: error: node1: task 0: Exited with exit code 2\n\n"),
            "slurmstepd: error: execve(): /opt/muster-agent: No such file or directory");
  EXPECT_EQ(telling_line("srun: error: Unable to create step: Invalid\nsrun: x\n"), "srun: x");
  EXPECT_EQ(telling_line("one line without an end"), "one line without an end");
  EXPECT_EQ(telling_line("a\x1b[31mb\r\n \n"), "a[31mb");
  EXPECT_EQ(telling_line("\n \n"), "");
  EXPECT_EQ(telling_line(""), "");
  EXPECT_EQ(telling_line(std::string(1000, 'x')).size(), kLongestQuote);
}

// Preemptions of jobs and steps stand behind the name of slurmstepd, which may have its node's, or behind the time.
TEST(LogWords, APreemptionIsNamedBySlurmstepdAlone) {
  const std::string text = "*** JOB 12 ON node1 CANCELLED AT 2026-11-28T19:38:58 DUE TO PREEMPTION ***";
  EXPECT_TRUE(names_preemption("slurmstepd: error: " + text + "\n"));
  EXPECT_TRUE(names_preemption("slurmstepd: error: " + text)) << "nothing follows";
  EXPECT_TRUE(
      names_preemption("a\nb\nslurmstepd-node1: error: *** STEP 12.0 ON node1 CANCELLED AT 2026-11-28T19:38:58 "
                       "DUE TO PREEMPTION ***\nsrun: x\n"));
  EXPECT_TRUE(names_preemption("[2026-11-28T19:38:58.120] error: " + text + "\n"));
  EXPECT_FALSE(names_preemption("slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-11-28T19:38:58 ***\n"));
  EXPECT_FALSE(
      names_preemption("slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-11-28T19:38:58 DUE TO TIME "
                       "LIMIT ***\n"));
  EXPECT_FALSE(names_preemption("slurmstepd: error: *** JOB 12\n DUE TO PREEMPTION ***\n")) << "two lines";
  EXPECT_FALSE(names_preemption(" DUE TO PREEMPTION ***")) << "no line of slurmstepd";
  EXPECT_FALSE(names_preemption(""));
}

// Goal: musterd learns from the status file of an agent how its rank fares.
class StatusOfARank : public testing::Test {
 protected:
  std::optional<TaskReport> after(const std::vector<agent::protocol::Fact>& facts) const {
    std::string text;
    for (const auto& fact : facts) text += agent::protocol::to_line(fact);
    test::write_file(folder_ / "status-3.jsonl", text);
    return read_rank_status(folder_.path(), 3);
  }
  test::TemporaryFolder folder_;
  const agent::protocol::Started started_{"boot", "n1", 7, {{42, 1}}};
};

TEST_F(StatusOfARank, IsNotKnownWithoutAFileOrFromOneThatMakesNoSense) {
  EXPECT_FALSE(any_rank_status(folder_.path()));
  EXPECT_EQ(read_rank_status(folder_.path(), 3), std::nullopt);
  EXPECT_EQ(after({}), std::nullopt);
  EXPECT_TRUE(any_rank_status(folder_.path()));
  test::write_file(folder_ / "status-3.jsonl", "{\n");
  EXPECT_EQ(read_rank_status(folder_.path(), 3), std::nullopt);
}

TEST_F(StatusOfARank, TellsARunningRankAndItsEnd) {
  const TaskReport running{
      .process = TaskReport::Process::kRunning, .node = "n1", .pid = 42, .exit = {}, .signals_seen = {}, .trouble = {}};
  EXPECT_EQ(after({started_, agent::protocol::Running{}}), running);
  auto ended = running;
  ended.process = TaskReport::Process::kStepLost;
  ended.exit = {0, 9};
  ended.out_of_memory = true;
  ended.signals_seen = {15};
  ended.ended_at = core::Millis(1234);
  ended.error = "ValueError: bad batch";
  const agent::protocol::Exited exited{3, {0, 9}, true, 1234, "ValueError: bad batch", {15}, true};
  EXPECT_EQ(after({started_, exited, agent::protocol::Ended{}}), ended);
  EXPECT_TRUE(has_ended(ended));
}

TEST_F(StatusOfARank, TellsWhyARankCouldNotBeStarted) {
  const auto failed = after({agent::protocol::LaunchFailed{"its attempt is over already", true, "n1"}});
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->process, TaskReport::Process::kExited);
  EXPECT_EQ(failed->exit.code, spec::kExitCannotStart);
  EXPECT_EQ(failed->trouble, "its attempt is over already");
  EXPECT_EQ(failed->node, "n1");
}

}  // namespace
}  // namespace executors::on_slurm
