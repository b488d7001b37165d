// Goal: ranks start together or not at all, each in a process group of its own with its own environment and log.
// Method: shell scripts as ranks.
#include "agent/process/gang.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/temporary_folder.h"

namespace agent::process {
namespace {

using testing::HasSubstr;

class Gangs : public testing::Test {
 protected:
  GangPlan plan(const std::string& script, std::uint32_t ranks = 1) const {
    GangPlan plan{
        .program = "/bin/sh", .argv = {"sh", "-c", script}, .working_folder = folder_.path().string(), .ranks = {}};
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      plan.ranks.push_back({rank, {{"RANK", std::to_string(rank)}}, log(rank).string()});
    }
    return plan;
  }
  std::filesystem::path log(std::uint32_t rank) const { return folder_ / ("rank-" + std::to_string(rank) + ".log"); }
  /// The wait status.
  static int end_of(const Gang& gang, std::size_t index = 0) {
    int status = -1;
    ::waitpid(static_cast<pid_t>(gang.ranks().at(index).pid), &status, 0);
    return status;
  }
  std::string refusal(const GangPlan& wanted) const {
    try {
      const Gang gang(wanted);
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "no refusal";
  }

  test::TemporaryFolder folder_;
};

TEST_F(Gangs, RunNothingBeforeTheGateOpens) {
  {
    Gang gang(plan("echo ran", 2));
    EXPECT_EQ(gang.ranks().size(), 2U);
  }
  EXPECT_EQ(test::read_file(log(0)) + test::read_file(log(1)), "");
}

TEST_F(Gangs, RunEachRankInAGroupOfItsOwn) {
  Gang gang(plan("echo $RANK; pwd; echo error >&2; [ $RANK = 1 ] && kill -KILL $$; exit 7", 2));
  EXPECT_EQ(gang.open_gate().has_value(), false);
  EXPECT_EQ(::getpgid(static_cast<pid_t>(gang.ranks()[0].pid)), gang.ranks()[0].pid);
  EXPECT_EQ(WEXITSTATUS(end_of(gang, 0)), 7);
  EXPECT_EQ(WTERMSIG(end_of(gang, 1)), SIGKILL);
  EXPECT_EQ(test::read_file(log(0)), "0\n" + std::filesystem::canonical(folder_.path()).string() + "\nerror\n");
}

TEST_F(Gangs, ASignalReachesTheWholeGroup) {
  Gang gang(plan("sleep 1000 & echo $!; wait"));
  ASSERT_FALSE(gang.open_gate());
  gang.signal(0, SIGKILL);
  EXPECT_EQ(WTERMSIG(end_of(gang)), SIGKILL);
}

TEST_F(Gangs, SayWhyAProgramCannotBeExecuted) {
  auto wanted = plan("");
  wanted.program = "/no/such/program";
  wanted.as_a_shell_would = true;
  Gang missing(wanted);
  EXPECT_STREQ(missing.open_gate()->what(), "cannot execute /no/such/program: No such file or directory");
  EXPECT_EQ(WEXITSTATUS(end_of(missing)), 127);
  test::write_file(folder_ / "script", "exit 3\n");
  ASSERT_EQ(::chmod((folder_ / "script").c_str(), 0755), 0);
  wanted.program = folder_ / "script";
  wanted.as_a_shell_would = false;
  Gang script(wanted);
  EXPECT_THAT(script.open_gate()->what(), HasSubstr("give a script a first line"));
  end_of(script);
}

TEST_F(Gangs, AsAShellWouldFindAProgramInPathAndRunAScriptWithoutAFirstLine) {
  auto wanted = plan("exit 5");
  wanted.program = "sh";
  wanted.as_a_shell_would = true;
  Gang found(wanted);
  ASSERT_FALSE(found.open_gate());
  EXPECT_EQ(WEXITSTATUS(end_of(found)), 5);
  test::write_file(folder_ / "script", "exit 3\n");
  ASSERT_EQ(::chmod((folder_ / "script").c_str(), 0755), 0);
  wanted.program = folder_ / "script";
  wanted.argv = {"script"};
  Gang script(wanted);
  ASSERT_FALSE(script.open_gate());
  EXPECT_EQ(WEXITSTATUS(end_of(script)), 3);
}

TEST_F(Gangs, SayWhichFolderOrLogIsMissing) {
  auto wanted = plan("");
  wanted.working_folder = "/no/such/folder";
  EXPECT_EQ(refusal(wanted), "cannot enter the working folder /no/such/folder: No such file or directory");
  wanted = plan("", 2);
  wanted.ranks[1].log = "/no/such/log";
  EXPECT_EQ(refusal(wanted), "cannot open log file /no/such/log: No such file or directory");
}

}  // namespace
}  // namespace agent::process
