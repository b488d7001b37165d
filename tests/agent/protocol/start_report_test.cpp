#include "agent/protocol/attempt_folder.h"

#include <gtest/gtest.h>

// Goal: the local executor understands how an agent has started.
namespace agent::protocol {
namespace {

TEST(StartReport, ComesBackAsItWas) {
  const auto running = parse_start_report(pid_line(42) + running_line());
  EXPECT_EQ(running.pid, 42);
  EXPECT_TRUE(running.running);
  EXPECT_FALSE(running.failure);
  for (const auto kind :
       {StartFailure::kForGood, StartFailure::kMayPass, StartFailure::kNoRoom, StartFailure::kNoDescriptors}) {
    const auto failed = parse_start_report(pid_line(42) + failed_line(kind, "no\nsuch program"));
    EXPECT_EQ(failed.failure, kind);
    EXPECT_EQ(failed.reason, "no such program");
    EXPECT_FALSE(failed.running);
  }
}

TEST(StartReport, AnUnfinishedOneSaysWhatHasCome) {
  EXPECT_FALSE(parse_start_report("").pid);
  const auto begun = parse_start_report("pid 42\nrunn");
  EXPECT_EQ(begun.pid, 42);
  EXPECT_FALSE(begun.running);
}

}  // namespace
}  // namespace agent::protocol
