#include "agent/protocol/supervisor_words.h"

#include <gtest/gtest.h>

// Goal: the local executor and supervisors of every version understand one another.
namespace agent::protocol {
namespace {

using namespace std::chrono_literals;

/// The commands that these lines, newlines between them, hold.
std::vector<StopCommand> commands_in(std::string_view lines) {
  StopReader reader;
  std::vector<StopCommand> found;
  for (auto end = lines.find('\n'); end != std::string_view::npos; end = lines.find('\n')) {
    if (const auto command = reader.take(lines.substr(0, end))) found.push_back(*command);
    lines.remove_prefix(end + 1);
  }
  return found;
}

TEST(StopCommand, ComesBackAsItWas) {
  for (const auto& command : {StopCommand{30s, "preempted", true}, StopCommand{0ms, "peer_failed", false},
                              StopCommand{30s, "requeued", true, 1240}}) {
    EXPECT_EQ(commands_in(to_lines(command)), std::vector{command});
  }
  EXPECT_EQ(to_lines({1500ms}), "stop 1500\n");
}

// Lines that a supervisor of the first version understands.
TEST(StopCommand, EndsWithALineThatEverySupervisorUnderstands) {
  EXPECT_EQ(to_lines({1500ms, "preempted", true}), "why preempted save\nstop 1500\n");
  EXPECT_EQ(to_lines({1500ms, "preempted", true, 1240}), "at 1240\nwhy preempted save\nstop 1500\n");
}

TEST(StopCommand, TheFirstReasonStaysAndGarbageIsPassedOver) {
  EXPECT_EQ(commands_in("why a save\nstop 9\nat 7\nwhy b\nstop x\nstop -1\nfly\n"),
            (std::vector{StopCommand{9ms, "a", true}, StopCommand{0ms, "a", true}}));
}

TEST(StacksLine, ComesBackAsItWasAndIsNoPartOfAStop) {
  EXPECT_EQ(stacks_line(41), "stacks 41\n");
  EXPECT_EQ(parse_stacks_line("stacks 41"), 41U);
  for (const char* other : {"stacks ", "stacks 0", "stacks -1", "stacks 4x", "stop 41", ""}) {
    EXPECT_FALSE(parse_stacks_line(other)) << other;
  }
  EXPECT_EQ(commands_in("at 7\nstacks 41\nwhy a save\nstop 9\n"), (std::vector{StopCommand{9ms, "a", true, 7}}));
}

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
