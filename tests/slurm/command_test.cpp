#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <thread>

#include "base/command.h"
#include "tests/slurm/scripted_runner.h"
#include "tests/slurm/temporary_folder.h"

namespace slurm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::TemporaryFolder;
using namespace std::chrono_literals;
using namespace std::string_literals;

base::Command bash(const std::string& script, std::chrono::milliseconds limit = 20s) {
  base::Command command;
  command.argv = {"bash", "-c", script};
  command.time_limit = limit;
  return command;
}

TEST(ProcessRunner, CommandsGetTheLimitOfOpenFilesThatJobsAreToHave) {
  base::ProcessRunner jobs_limit(true, 77);
  EXPECT_EQ(jobs_limit.run(bash("ulimit -Sn")).out, "77\n");
}

/// True if a process exists and is no zombie.
bool runs(pid_t pid) {
  const auto stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const auto end = stat.rfind(')');
  return end != std::string::npos && stat.size() > end + 2 && stat[end + 2] != 'Z';
}

/// Polls until the condition holds, for at most ten seconds.
template <class Condition>
bool eventually(Condition holds) {
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// The promises of every CommandRunner. The tests run on the real runner, and on the scripted one that other tests rely
// on.

std::shared_ptr<base::CommandRunner> scripted() {
  auto runner = std::make_shared<ScriptedRunner>();
  runner->on("bash", [](const base::Command& command) {
    const auto& script = command.argv.at(2);
    if (script == "cat; echo err >&2; exit 3") return finished(3, command.input, "err\n");
    if (script == "kill -9 $$") return killed_by(9);
    if (script == "sleep 60") return too_slow(command);
    if (script == "head -c 100000 /dev/zero | tr '\\0' x") return finished(0, std::string(100000, 'x'));
    return finished(127);
  });
  return runner;
}

class CommandRunnerContract : public ::testing::TestWithParam<std::string> {
 protected:
  CommandRunnerContract() : runner_(GetParam() == "real" ? std::make_shared<base::ProcessRunner>() : scripted()) {}
  std::shared_ptr<base::CommandRunner> runner_;
};

TEST_P(CommandRunnerContract, OutputErrorsAndExitCodeComeBack) {
  auto command = bash("cat; echo err >&2; exit 3");
  command.input = "line\n\0half"s.substr(0, 10);
  const auto result = runner_->run(command);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, command.input);
  EXPECT_EQ(result.err, "err\n");
  EXPECT_EQ(result.signal, 0);
  EXPECT_FALSE(result.timed_out);
  EXPECT_FALSE(result.succeeded());
}

TEST_P(CommandRunnerContract, ASignalIsNoExitCode) {
  const auto result = runner_->run(bash("kill -9 $$"));
  EXPECT_EQ(result.signal, 9);
  EXPECT_EQ(result.exit_code, -1);
  EXPECT_FALSE(result.succeeded());
}

TEST_P(CommandRunnerContract, TheTimeLimitHolds) {
  const auto result = runner_->run(bash("sleep 60", 200ms));
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, -1);
  EXPECT_EQ(result.signal, 0);
  EXPECT_GE(result.took, 200ms);
  EXPECT_LT(result.took, 20s);
  EXPECT_FALSE(result.succeeded());
}

TEST_P(CommandRunnerContract, OutputIsBounded) {
  auto command = bash("head -c 100000 /dev/zero | tr '\\0' x");
  command.max_output_bytes = 1000;
  const auto result = runner_->run(command);
  EXPECT_EQ(result.out, std::string(1000, 'x'));
  EXPECT_TRUE(result.out_cut);
  EXPECT_FALSE(result.err_cut);
}

TEST_P(CommandRunnerContract, WhatIsNotThereCanNotStart) {
  base::Command command;
  command.argv = {"no-such-program-of-anyone"};
  const auto result = runner_->run(command);
  EXPECT_THAT(result.could_not_start, HasSubstr("no-such-program-of-anyone: not found in PATH"));
  EXPECT_FALSE(result.succeeded());
}

INSTANTIATE_TEST_SUITE_P(Runners, CommandRunnerContract, ::testing::Values("real", "scripted"),
                         [](const auto& each) { return each.param; });

TEST(ProcessRunner, TheLimitLeavesNothingOfTheGroup) {
  const TemporaryFolder folder;
  const auto file = (folder / "pids").native();
  const auto result = base::ProcessRunner().run(bash(
      "trap '' TERM; (trap '' TERM; echo $BASHPID >> '" + file + "'; sleep 60) & echo $$ >> '" + file + "'; wait", 3s));
  EXPECT_TRUE(result.timed_out);
  std::istringstream pids(read_file(file));
  int count = 0;
  for (pid_t pid = 0; pids >> pid; ++count) EXPECT_TRUE(eventually([&] { return !runs(pid); })) << pid;
  EXPECT_EQ(count, 2);
}

TEST(ProcessRunner, AnEndlessWriterIsBoundedAndEnded) {
  base::Command command;
  command.argv = {"yes"};
  command.time_limit = 3s;  // enough to write 5,000 bytes on any machine
  command.max_output_bytes = 5000;
  const auto result = base::ProcessRunner().run(command);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.out.size(), 5000U);
  EXPECT_TRUE(result.out_cut);
}

TEST(ProcessRunner, WhatIsLeftInTheBackgroundDelaysNobody) {
  const auto result = base::ProcessRunner().run(bash("sleep 60 & echo $!"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_LT(result.took, 15s);
  const pid_t left = std::stoi(result.out);
  EXPECT_TRUE(runs(left));
  ::kill(left, SIGKILL);
}

TEST(ProcessRunner, ABigInputIsNotNeededToBeRead) {
  auto command = bash("exit 4");
  command.input = std::string(std::size_t{8} << 20, 'x');
  EXPECT_EQ(base::ProcessRunner().run(command).exit_code, 4);
  command = bash("wc -c");
  command.input = std::string(std::size_t{8} << 20, 'x');
  EXPECT_THAT(base::ProcessRunner().run(command).out, HasSubstr("8388608"));
}

TEST(ProcessRunner, TheEnvironmentIsWhatTheCommandSays) {
  ::setenv("SLURM_JOB_ID", "7", 1);
  ::setenv("MUSTER_KEPT", "kept", 1);
  auto command = bash("env");
  command.unset = {"SLURM_*"};
  command.environment = {{"SLURM_CONF", "a b\nc"}, {"HOME", "/nowhere"}};
  const auto out = base::ProcessRunner().run(command).out;
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_THAT(out, Not(HasSubstr("SLURM_JOB_ID")));
  EXPECT_THAT(out, HasSubstr("SLURM_CONF=a b\nc\n"));
  EXPECT_THAT(out, HasSubstr("MUSTER_KEPT=kept\n"));
  EXPECT_THAT(out, HasSubstr("HOME=/nowhere\n"));
  EXPECT_EQ(out.find("HOME="), out.rfind("HOME=")) << "replaced, not added";
}

TEST(ProcessRunner, AChildThatInheritsNothingGetsWhatTheCommandSaysAlone) {
  ::setenv("MUSTER_KEPT", "kept", 1);
  base::Command command;
  command.argv = {"env"};
  command.inherit = false;
  command.environment = {{"PATH", "/nowhere"}, {"A", "b"}};
  const auto result = base::ProcessRunner().run(command);
  EXPECT_EQ(result.out, "PATH=/nowhere\nA=b\n") << result.could_not_start;
}

TEST(ProcessRunner, OnlyTheDescriptorsNamedAreHandedOn) {
  const TemporaryFolder folder;
  const int lock = ::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const int other = ::open("/dev/null", O_RDONLY);  // without close-on-exec, so the runner itself must close it
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  auto command = bash("ls /proc/$$/fd; sleep 0.2 & disown");
  command.keep_fds = {lock};
  const auto result = base::ProcessRunner().run(command);
  std::istringstream listed(result.out);
  std::vector<int> fds;
  for (int fd = 0; listed >> fd;) fds.push_back(fd);
  EXPECT_THAT(fds, ::testing::Contains(lock));
  EXPECT_THAT(fds, Not(::testing::Contains(other)));
  ::close(other);
  ::close(lock);
  // The process that the command left running holds the lock until it ends.
  const int again = ::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_TRUE(eventually([&] { return ::flock(again, LOCK_EX | LOCK_NB) == 0; }));
  ::close(again);
}

TEST(ProcessRunner, ASignalToOurGroupDoesNotReachTheChild) {
  const auto result = base::ProcessRunner().run(bash("ps -o pgid= -p $$; echo $$"));
  std::istringstream numbers(result.out);
  pid_t group = 0;
  pid_t self = 0;
  numbers >> group >> self;
  EXPECT_EQ(group, self);
}

TEST(ProcessRunner, AFileThatIsNoProgramSaysSo) {
  base::Command command;
  command.argv = {"/dev/null"};
  EXPECT_THAT(base::ProcessRunner().run(command).could_not_start, HasSubstr("/dev/null: Permission denied"));
  EXPECT_FALSE(base::ProcessRunner().run(base::Command{}).could_not_start.empty());
}

TEST(ProcessRunner, ManyThreadsAtOnce) {
  base::ProcessRunner runner;
  std::vector<std::thread> threads;
  std::array<int, 8> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    threads.emplace_back(
        [&runner, &codes, i] { codes[i] = runner.run(bash("exit " + std::to_string(i + 1))).exit_code; });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i], static_cast<int>(i + 1));
}

}  // namespace
}  // namespace slurm
