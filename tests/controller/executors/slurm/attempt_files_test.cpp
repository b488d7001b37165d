#include "executors/slurm/attempt_files.h"

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

}  // namespace
}  // namespace executors::on_slurm
