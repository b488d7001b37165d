#include "controller/executors/slurm/attempt_files.h"

#include <gtest/gtest.h>

namespace executors::on_slurm {
namespace {

TEST(LogWords, TheLineThatSaysWhyIsQuoted) {
  EXPECT_EQ(telling_line("slurmstepd: error: execve(): /opt/muster-task: No such file or directory\n"
                         "srun: error: node1: task 0: Exited with exit code 2\n\n"),
            "slurmstepd: error: execve(): /opt/muster-task: No such file or directory");
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

}  // namespace
}  // namespace executors::on_slurm
