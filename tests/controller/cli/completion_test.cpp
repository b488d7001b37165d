#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "system/process.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string script_of(const std::string& shell) {
  return run({MUSTER_PROGRAM, "completion", shell}, {}, 10s).out;
}

/// What bash would offer for the last of `words`, one a line.
std::string offered(const TempFolder& folder, const std::string& words, int count) {
  write_file(folder.path() / "completion.bash", script_of("bash"));
  const auto program = "source " + (folder.path() / "completion.bash").native() + "; cd " + folder.path().native() +
                       "; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(count) +
                       "; _muster; printf '%s\\n' \"${COMPREPLY[@]}\"";
  const auto done = run({"/bin/bash", "--norc", "-c", program}, {}, 10s);
  EXPECT_EQ(done.err, "");
  return done.out;
}

TEST(Completion, BashScriptParsesAndOffersCommandsOptionsAndValues) {
  TempFolder folder;
  write_file(folder.path() / "check.bash", script_of("bash"));
  EXPECT_EQ(run({"/bin/bash", "-n", folder.path() / "check.bash"}, {}, 10s).exit, 0);
  EXPECT_EQ(offered(folder, "muster su", 1), "submit\n");
  EXPECT_EQ(offered(folder, "muster --address x:1 re", 3), "requeue\n");
  EXPECT_EQ(offered(folder, "muster list --st", 2), "--state\n");
  EXPECT_EQ(offered(folder, "muster list --state ca", 3), "cancelled\n");
  EXPECT_EQ(offered(folder, "muster completion z", 2), "zsh\n");
  EXPECT_EQ(offered(folder, "muster submit --set train.learn", 3), "train.learning_rate=\n");
  write_file(folder.path() / "job.toml", "");
  write_file(folder.path() / "notes.txt", "");
  EXPECT_THAT(offered(folder, "muster submit ''", 2), AllOf(HasSubstr("job.toml"), Not(HasSubstr("notes.txt"))));
}

TEST(Completion, EveryShellKnowsEveryCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = script_of(shell);
    for (const char* command : {"submit", "list", "show", "logs", "events", "metrics", "wait", "cancel", "requeue",
                                "doctor", "completion", "version"}) {
      EXPECT_THAT(script, HasSubstr(command)) << shell;
    }
    EXPECT_THAT(script, HasSubstr("follow")) << shell;
  }
}

TEST(Completion, AnotherShellIsRefused) {
  const auto refused = run({MUSTER_PROGRAM, "completion", "tcsh"}, {}, 10s);
  EXPECT_EQ(refused.exit, 2);
  EXPECT_EQ(refused.out, "");
}

}  // namespace
}  // namespace test
