// Batch scripts as text, and as bash runs them with a fake srun.
#include "slurm/batch_script.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "base/command.h"
#include "base/words.h"
#include "tests/slurm/temporary_folder.h"

namespace slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;
using namespace std::chrono_literals;

BatchScript script_of(std::vector<std::string> command) {
  BatchScript s;
  s.launch.command = std::move(command);
  return s;
}

std::vector<std::string> option_lines(const BatchScript& s) {
  std::vector<std::string> lines;
  std::istringstream text(render(s));
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#SBATCH ")) lines.push_back(line.substr(8));
  }
  return lines;
}

TEST(BatchScript, AUsualJobReadsLikeOneWrittenByHand) {
  auto s = script_of({"/opt/muster/muster-agent", "--plan", "/data/job 1/plan.json"});
  s.name = "finetune";
  s.output = {.path = "logs/%x-%j.out"};
  s.options = {{"nodes", "2"},       {"ntasks-per-node", "4"}, {"cpus-per-task", "8"},      {"gpus-per-task", "1"},
               {"partition", "gpu"}, {"time", "600"},          {"no-requeue", std::nullopt}};
  s.steps.setup = {"module load cuda"};
  s.steps.teardown = {"rm -rf /scratch/$SLURM_JOB_ID"};
  EXPECT_EQ(render(s), R"(#!/bin/bash
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
#SBATCH --job-name=finetune
#SBATCH --no-requeue
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --open-mode=append
#SBATCH --output=logs/%x-%j.out
#SBATCH --partition=gpu
#SBATCH --time=600

# modules
if ! type module > /dev/null 2>&1; then
  for muster_file in "${MODULESHOME:-}/init/bash" /etc/profile.d/modules.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/lmod.sh; do
    if [ -r "$muster_file" ]; then . "$muster_file"; break; fi
  done
fi

# setup
module load cuda

muster_exit=
muster_signalled=
trap 'muster_signalled=1' TERM

# command
if [ -z "$muster_exit" ]; then
  srun --unbuffered --kill-on-bad-exit=1 --cpus-per-task=8 /opt/muster/muster-agent --plan '/data/job 1/plan.json' &
  muster_pid=$!
  while :; do
    muster_signalled=
    muster_now=0
    wait "$muster_pid" || muster_now=$?
    if [ "$muster_now" != 127 ] || [ -z "$muster_exit" ]; then muster_exit=$muster_now; fi
    if [ -z "$muster_signalled" ] || [ "$muster_now" -le 128 ]; then break; fi
  done
fi

# teardown: in a subshell, so that an error in it cannot change the exit code
trap 'exit "$muster_exit"' EXIT
(
rm -rf /scratch/$SLURM_JOB_ID
) || :
exit "$muster_exit"
)");
  EXPECT_THAT(problems(s), IsEmpty());
}

TEST(BatchScript, ACommandInTheScriptGetsTheSignalsThatTheScriptGetsAlone) {
  const TemporaryFolder folder;
  auto s = script_of({"bash", "-c",
                      "trap 'echo usr1; exit 7' USR1; trap 'echo term' TERM; kill -TERM $PPID; "
                      "while :; do kill -USR1 $PPID; sleep 0.02; done"});
  s.launch.in_script = true;
  EXPECT_THAT(render(s), Not(HasSubstr("srun")));
  const auto file = folder.path() / "script";
  write_file(file, render(s));
  const auto done = base::ProcessRunner().run({.argv = {"bash", file.string()}, .time_limit = 20s});
  EXPECT_EQ(done.exit_code, 7) << done.err;
  EXPECT_EQ(done.out, "usr1\n") << "a SIGTERM of Slurm reaches all processes by itself";
}

// A signal between the start of the program and the line after it was lost. The shell waits for each signal that it
// sends itself, so the setup lines are surely before that.
TEST(BatchScript, ASignalThatComesBeforeTheCommandRunsWaitsForIt) {
  const TemporaryFolder folder;
  const auto ready = (folder.path() / "ready").string();
  auto s = script_of(
      {"bash", "-c",
       "trap 'echo usr1; exit 7' USR1; trap 'echo hup' HUP; touch " + ready + "; while :; do sleep 0.02; done"});
  s.launch.in_script = true;
  auto text = render(s);
  const std::string before = "\n# command\n", after = "  for muster_signal in $muster_early";
  // The program must have its traps before it gets a signal.
  text = base::replaced(text, before, "\nkill -HUP $$; kill -USR1 $$; kill -HUP $$\n" + before);
  text = base::replaced(text, after, "  until [ -e " + ready + " ]; do sleep 0.02; done\n" + after);
  const auto file = folder.path() / "script";
  write_file(file, text);
  const auto done = base::ProcessRunner().run({.argv = {"bash", file.string()}, .time_limit = 20s});
  EXPECT_EQ(done.exit_code, 7) << done.err;
  EXPECT_THAT(done.out, ::testing::EndsWith("usr1\n"));
}

TEST(BatchScript, QuotesInAnOptionAreTheValuesOwn) {
  auto s = script_of({"x"});
  s.comment = R"(the "best" \one)";
  EXPECT_THAT(option_lines(s), ElementsAre(R"(--comment="the \"best\" \\one")", "--open-mode=append"));
}

TEST(BatchScript, OptionsAreSortedAndHaveTheLastWord) {
  auto s = script_of({"x"});
  s.name = "n";
  s.array = ArrayTasks{{4, 0, 1, 2}, 3};
  s.options = {
      {"partition", "q"}, {"constraint", "a&b"}, {"exclusive", std::nullopt}, {"nice", "-3"}, {"job-name", "m"}};
  EXPECT_THAT(option_lines(s), ElementsAre("--array=0-2,4%3", "--constraint=\"a&b\"", "--exclusive", "--job-name=m",
                                           "--nice=-3", "--open-mode=append", "--partition=q"));
}

TEST(BatchScript, AValueNeverBecomesAnotherLine) {
  auto s = script_of({"x"});
  s.name = "a\n#SBATCH --account=thief\nrm -rf /";
  s.comment = "b\r\n#SBATCH --qos=thief";
  s.options = {{"partition", "p\n#SBATCH --hold"}, {"hint\nrm -rf /", "x"}};
  for (const auto& line : option_lines(s))
    EXPECT_THAT(line, Not(::testing::AnyOf(::testing::StartsWith("--account"), ::testing::StartsWith("--qos"),
                                           ::testing::StartsWith("--hold"))))
        << line;
  std::istringstream text(render(s));
  for (std::string line; std::getline(text, line);) EXPECT_FALSE(line.starts_with("rm")) << line;
  EXPECT_THAT(problems(s), ::testing::SizeIs(2)) << "the partition and the name of an option";
}

TEST(BatchScript, WhatCanNotBeSaidIsNamed) {
  const auto first = [](BatchScript s) {
    const auto all = problems(s);
    return all.empty() ? std::string("nothing") : all.front();
  };
  auto s = script_of({"x"});
  EXPECT_EQ(first(s), "nothing");
  EXPECT_EQ(first({}), "there is no command to run");
  s.chdir = "relative";
  EXPECT_THAT(first(s), HasSubstr("must be absolute"));
  s = script_of({std::string("a\0b", 3)});
  EXPECT_THAT(first(s), HasSubstr("zero byte"));
  s = script_of({"x"});
  s.array = ArrayTasks{};
  EXPECT_THAT(first(s), HasSubstr("without tasks"));
  s.array = ArrayTasks{{1, 1}, 0};
  EXPECT_THAT(first(s), HasSubstr("twice"));
  s = script_of({"x"});
  s.index_mark = "{}";
  EXPECT_THAT(first(s), HasSubstr("without an array"));
  s = script_of({"x"});
  s.steps.setup = {"echo a\r"};
  EXPECT_THAT(first(s), HasSubstr("carriage return"));
  s = script_of({"x"});
  s.output = {.path = "a\nb"};
  EXPECT_THAT(first(s), HasSubstr("literal"));
  s = script_of({"x"});
  s.options = {{"--hint", "x"}};
  EXPECT_EQ(first(s), "'--hint' is no option of sbatch");
}

TEST(Quoting, BashReadsBackWhatWasQuoted) {
  const std::vector<std::string> hostile = {"",
                                            "plain",
                                            "a b",
                                            "it's",
                                            "\"q\"",
                                            "$HOME `id` $(id)",
                                            "a\\b",
                                            "line\nbreak",
                                            "\r\n\t\x01\x7f"
                                            "7",
                                            "100%",
                                            "~",
                                            "*?[a]",
                                            "größe",
                                            "-n",
                                            "a\n'b'\\n",
                                            "!x"};
  for (const auto& word : hostile) {
    base::Command command;
    command.argv = {"bash", "-c", "printf %s. " + bash_quote(word)};
    EXPECT_EQ(base::ProcessRunner().run(command).out, word + ".");
    EXPECT_EQ(bash_quote(word).find('\n'), std::string::npos);
    command.argv = {"sh", "-c", "printf %s. " + shell_quote(word)};
    EXPECT_EQ(base::ProcessRunner().run(command).out, word + ".");
  }
}

/// Runs scripts with a fake srun. The fake writes down its arguments, then runs what $SRUN_DOES says, or the command
/// itself.
class RunScript : public ::testing::Test {
 protected:
  RunScript() {
    write_file(folder_ / "bin/srun", R"sh(#!/bin/bash
printf '%s\0' "$@" >> "$WORDS"
while [ "${1:0:2}" = -- ]; do shift; done
if [ -n "$SRUN_DOES" ]; then eval "$SRUN_DOES"; exit; fi
"$@"
)sh");
    std::filesystem::permissions(folder_ / "bin/srun", std::filesystem::perms::owner_all);
  }

  base::Command command(const BatchScript& s) {
    EXPECT_THAT(problems(s), IsEmpty());
    write_file(folder_ / "script", render(s));
    base::Command c;
    c.argv = {"bash", (folder_ / "script").native()};
    c.time_limit = 30s;
    c.environment = environment_;
    c.environment.emplace_back("PATH", (folder_ / "bin").native() + ":/usr/bin:/bin");
    c.environment.emplace_back("WORDS", (folder_ / "words").native());
    c.environment.emplace_back("HERE", folder_.path().native());
    c.unset = {"SLURM_*"};
    return c;
  }
  base::CommandResult run(const BatchScript& s) {
    auto result = base::ProcessRunner().run(command(s));
    EXPECT_FALSE(result.timed_out) << result.err;
    return result;
  }

  /// Runs the script. Once the command has made the file `ready`, sends the signal to the script only.
  base::CommandResult run_with_signal(const BatchScript& s, int signal) {
    auto c = command(s);
    c.argv = {"bash", "-c", "echo $$ > \"$HERE/pid\"; exec bash \"$HERE/script\""};
    base::CommandResult result;
    std::thread runner([&] { result = base::ProcessRunner().run(c); });
    const auto limit = std::chrono::steady_clock::now() + 20s;
    while (!std::filesystem::exists(folder_ / "ready") && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(5ms);
    ::kill(std::stoi(read_file(folder_ / "pid")), signal);
    runner.join();
    EXPECT_FALSE(result.timed_out) << result.err;
    return result;
  }

  std::string srun_words() {
    auto words = read_file(folder_ / "words");
    std::ranges::replace(words, '\0', ' ');
    return words;
  }

  const TemporaryFolder folder_;
  std::vector<std::pair<std::string, std::string>> environment_;
};

TEST_F(RunScript, TheCommandsExitCodeIsTheScripts) {
  EXPECT_EQ(run(script_of({"bash", "-c", "exit 7"})).exit_code, 7);
  EXPECT_EQ(run(script_of({"true"})).exit_code, 0);
  EXPECT_EQ(run(script_of({"bash", "-c", "kill -9 $$"})).exit_code, 137);
  EXPECT_EQ(run(script_of({"bash", "-c", "exit 127"})).exit_code, 127);
}

TEST_F(RunScript, NoTeardownMasksIt) {
  for (const auto* teardown :
       {"exit 5", "false", "set -e; false; echo never", "if ; then", "trap - EXIT; exit 0", "kill -9 $BASHPID"}) {
    auto s = script_of({"bash", "-c", "exit 7"});
    s.steps.teardown = {"touch $HERE/torn", teardown};
    EXPECT_EQ(run(s).exit_code, 7) << teardown;
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "torn"));
}

// Environment Modules and Lmod define a function in login shells.
TEST_F(RunScript, ModuleIsThereForSetupLinesAndHealthChecks) {
  write_file(folder_ / "init/bash",
             "echo >> \"$HERE/sourced\"\nmodule() { echo \"$*\" >> \"$HERE/loaded\"; }\nexport -f module\n");
  auto s = script_of({"true"});
  environment_ = {{"MODULESHOME", folder_.path().native()}};
  s.steps.setup = {"module load cuda || exit 1"};
  s.steps.health_check = {"module list"};
  EXPECT_EQ(run(s).exit_code, 0);
  EXPECT_EQ(read_file(folder_ / "loaded"), "load cuda\nlist\n");
  EXPECT_EQ(read_file(folder_ / "sourced"), "\n");

  environment_.emplace_back("BASH_FUNC_module%%", "() { echo \"own $*\" >> \"$HERE/loaded\"; }");
  s.steps.health_check = {};
  EXPECT_EQ(run(s).exit_code, 0);
  EXPECT_EQ(read_file(folder_ / "loaded"), "load cuda\nlist\nown load cuda\n") << "that of the site comes first";
  EXPECT_EQ(read_file(folder_ / "sourced"), "\n");

  s.steps.setup = {"echo modules"};
  EXPECT_EQ(render(s).find("init/bash"), std::string::npos) << "nobody asks for it";
}

TEST_F(RunScript, ASetupThatIsStrictChangesNothing) {
  auto s = script_of({"bash", "-c", "exit 7"});
  s.steps.setup = {"set -euo pipefail"};
  s.steps.teardown = {"touch $HERE/torn"};
  s.steps.leave_when_restarted = true;
  s.steps.health_check = {"true"};
  environment_ = {{"SLURM_JOB_NUM_NODES", "1"}};
  EXPECT_EQ(run(s).exit_code, 7);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "torn"));
}

TEST_F(RunScript, HostileValuesArriveAsTheyAre) {
  const std::string hostile = "it's \"50%\" $HOME `id`\\\n\tü;&|#\r";
  EXPECT_EQ(run(script_of({"bash", "-c", "printf '%s|' \"$1\"", "x", hostile})).out, hostile + "|");
}

TEST_F(RunScript, FoldersAndLogsMayHaveAnyName) {
  const auto odd = folder_ / "a b\n'c' 100% \\ $x";
  std::filesystem::create_directory(odd);
  auto s = script_of({"bash", "-c", "pwd; echo err >&2"});
  s.chdir = odd.native();
  s.output = {.path = (odd / "out %j\n").native(), .literal = true};
  const auto result = run(s);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(read_file(odd / "out %j\n"), odd.native() + "\nerr\n");
  EXPECT_THAT(option_lines(s), ::testing::Contains("--output=/dev/null"));
  s.output = {.path = "/logs/100%j", .literal = true};
  EXPECT_THAT(option_lines(s), ::testing::Contains("--output=/logs/100%%j"));
}

TEST_F(RunScript, ARunThatSlurmRestartedLeavesAtOnce) {
  auto s = script_of({"touch", (folder_ / "ran").native()});
  s.steps.leave_when_restarted = true;
  s.steps.setup = {"touch $HERE/setup"};
  environment_ = {{"SLURM_RESTART_COUNT", "1"}};
  EXPECT_EQ(run(s).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "setup"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "ran"));
  environment_.clear();
  EXPECT_EQ(run(s).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "ran"));
}

TEST_F(RunScript, AnUnfitNodeRunsNoCommand) {
  auto s = script_of({"touch", (folder_ / "ran").native()});
  s.steps.health_check = {"echo checked", "false", "echo never"};
  s.steps.teardown = {"touch $HERE/torn"};
  environment_ = {{"SLURM_JOB_NUM_NODES", "3"}};
  const auto result = run(s);
  EXPECT_EQ(result.exit_code, 96);
  EXPECT_EQ(result.out, "checked\n");
  EXPECT_THAT(result.err, HasSubstr("health check failed with exit code 1"));
  EXPECT_THAT(srun_words(), HasSubstr("--nodes=3 --ntasks=3 --ntasks-per-node=1 "));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "ran"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "torn"));
  s.steps.health_check = {"true", "true"};
  EXPECT_EQ(run(s).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "ran"));
}

TEST_F(RunScript, TermIsSurvivedWithoutReachingTheCommand) {
  auto s = script_of({"x"});
  environment_ = {{"SRUN_DOES", "trap 'exit 9' TERM; touch $HERE/ready; sleep 0.5; exit 4"}};
  EXPECT_EQ(run_with_signal(s, SIGTERM).exit_code, 4);
}

TEST_F(RunScript, ArraysReplaceTheMark) {
  auto s = script_of({"echo", "plan-{i}.json", "{i}{i}", "x y"});
  s.index_mark = "{i}";
  s.array = ArrayTasks{{0, 1, 7}, 2};
  s.output = {.path = "/logs/{i}%", .literal = true};
  environment_ = {{"SLURM_ARRAY_TASK_ID", "7"}};
  EXPECT_EQ(run(s).out, "plan-7.json 77 x y\n");
  EXPECT_THAT(option_lines(s), ::testing::Contains("--output=/logs/%a%%"));
}

TEST_F(RunScript, SrunIsToldWhatItNeeds) {
  auto s = script_of({"true"});
  s.launch.srun_args = {"--gpus-per-task=1", "--label x"};
  EXPECT_EQ(run(s).exit_code, 0);
  EXPECT_EQ(srun_words(),
            "--unbuffered --kill-on-bad-exit=1 "
            "--gpus-per-task=1 --label x true ");
}

}  // namespace
}  // namespace slurm
