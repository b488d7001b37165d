// Goal: with executor = "debug" muster submit runs the ranks as an attempt would, and leaves nothing behind.
// Method: the real program with small shell scripts as ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/fake_controller.h"
#include "tests/places.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Debug : public testing::Test {
 protected:
  Finished submit(const std::string& text, std::vector<std::string> more = {}) {
    write_file(folder_.path() / "job.toml", text);
    std::vector<std::string> arguments{::test::built_program("muster"), "submit", folder_.path() / "job.toml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, here_, 30s);
  }
  /// How many folders debug runs have left.
  std::size_t left_behind() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      count += entry.path().filename().native().starts_with("muster-debug-");
    }
    return count;
  }
  TemporaryFolder folder_;
  std::map<std::string, std::string> here_{
      {"TMPDIR", folder_.path()}, {"HOME", folder_.path()}, {"MUSTER_ADDRESS", "127.0.0.1:1"}};
};

constexpr const char* kShow =
    "name = \"a\"\nexecutor = \"debug\"\ncommand = [\"/bin/sh\", \"-c\", \"echo $RANK $WORLD_SIZE $A $PWD "
    "$MUSTER_JOB_ID $MUSTER_ATTEMPT; "
    "test -d $MUSTER_CHECKPOINT_FOLDER && test -d $MUSTER_ATTEMPT_FOLDER && test $MASTER_PORT -gt 0 || exit 1; "
    "echo oops >&2; exit 7\"]\nenv.A = \"x\"\n";

TEST_F(Debug, RunsTheProgramHereWithoutAControllerAndPassesItsExitCodeOn) {
  const auto done = submit(kShow);
  EXPECT_EQ(done.exit, 7);
  EXPECT_EQ(done.out, "0 1 x " + folder_.path().native() + " 0 1\n");
  EXPECT_THAT(done.err, AllOf(StartsWith("muster: running a here, in the foreground. Its files are in "),
                              HasSubstr(folder_.path().native() + "/muster-debug-"), HasSubstr("oops\n")));
  EXPECT_EQ(left_behind(), 0U);
  const auto masks =
      submit("name = \"a\"\ncommand = [\"grep\", \"SigBlk\", \"/proc/self/status\"]\n", {"--executor", "debug"});
  EXPECT_EQ(masks.out, "SigBlk:\t0000000000000000\n") << "signals reach the program: none stays blocked";
}

TEST_F(Debug, SaysWhatTheProgramHasReported) {
  const auto done = submit(R"(name = "a"
executor = "debug"
command = ["sh", "-c", """
tell() { echo "$1" >> $MUSTER_REPORT; }
[ $RANK = 1 ] && exit 0
tell '{"total_steps":60}'
tell '{"step":1,"loss":4}'
tell '{"step":2,"loss":2.5,"lr":0.1}'
tell 'loss 3'
tell '{"checkpoint":"ckpt/2","step":2}'
tell '{"error":{"type":"ValueError","message":"no data"}}'
exit 1
"""]
[resources]
ranks_per_node = 2
)");
  EXPECT_EQ(done.exit, 1);
  EXPECT_THAT(done.err, HasSubstr("muster: rank 0 reported 2 steps, the newest 2 of 60: loss 2.5, lr 0.1\n"
                                  "muster: rank 0 reported a checkpoint of step 2: ckpt/2\n"
                                  "muster: rank 0 reported an error: ValueError: no data\n"
                                  "muster: rank 0 wrote 1 line into its report file that cannot be read, or only in "
                                  "part; the first: line 4: \"loss 3\" is no JSON object\n"));
  EXPECT_THAT(done.err, Not(HasSubstr("rank 1 reported"))) << "it said nothing";
  EXPECT_THAT(done.err, HasSubstr("muster: rank 0 exited with 1"));
  const auto asks =
      submit("name = \"a\"\nexecutor = \"debug\"\ncommand = [\"true\"]\nreport.log = {loss = 'loss (.*)'}\n");
  EXPECT_THAT(asks.err, HasSubstr("nobody reads here what [report] names"));
}

TEST_F(Debug, RanksFindWhatThoseOfAnAttemptFindAndNothingElseOfThisShell) {
  here_["SECRET_OF_THIS_SHELL"] = "x";
  here_["VIRTUAL_ENV"] = "/venv";
  here_["TERM"] = "dumb";
  const auto done = submit("name = \"a\"\nexecutor = \"debug\"\ncommand = [\"env\"]\nenv.LR = 3\n");
  ASSERT_EQ(done.exit, 0) << done.err;
  for (const auto* line : {"VIRTUAL_ENV=/venv\n", "TERM=dumb\n", "LR=3\n", "PYTHONUNBUFFERED=1\n", "MUSTER_NODES=1\n",
                           "MUSTER_STOP=", "TORCHELASTIC_RESTART_COUNT=0\n", "GROUP_RANK=0\n"}) {
    EXPECT_THAT(done.out, HasSubstr(line));
  }
  for (const auto* name : {"SECRET_OF_THIS_SHELL", "MUSTER_ADDRESS", "MUSTER_METRICS_FILE", "TMPDIR"}) {
    EXPECT_THAT(done.out, Not(HasSubstr(name)));
  }
  here_["PATH"] = "/nowhere";
  EXPECT_THAT(submit("name = \"a\"\nexecutor = \"debug\"\ncommand = [\"env\"]\n").err, HasSubstr("cannot start env: "))
      << "the program is looked for where the ranks would look";
}

TEST_F(Debug, AllRanksRunAndTheLinesOfOthersThanRank0SayWhoseTheyAre) {
  write_file(folder_.path() / "job.toml", R"(name = "a"
executor = "debug"
command = ["/bin/sh", "-c", """
echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on node $NODE_RANK
echo "[rank $RANK] names itself"
read line && echo got $line || echo no input"""]
[resources]
nodes = 2
ranks_per_node = 2
)");
  const auto line = ::test::built_program("muster") + " submit " + (folder_.path() / "job.toml").native();
  const auto done = run({"/bin/bash", "-c", "echo input | " + line}, here_, 30s);
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out, "0 of 4, 0 of 2 on node 0\n[rank 0] names itself\ngot input\n");
  for (const auto* said : {"[rank 1] 1 of 4, 1 of 2 on node 0\n[rank 1] names itself\n",
                           "[rank 2] 2 of 4, 0 of 2 on node 1\n", "[rank 3] 3 of 4, 1 of 2 on node 1\n",
                           "[rank 3] no input\n", ": 4 ranks, of which rank 0 has this terminal. "}) {
    EXPECT_THAT(done.err, HasSubstr(said));
  }
}

TEST_F(Debug, WhenOneRankFailsTheOthersLeaveAndItsCodeIsTheResult) {
  const auto done = submit(R"(name = "a"
executor = "debug"
command = ["/bin/sh", "-c", """
if [ $RANK = 1 ]; then until [ -e ready.0 ] && [ -e ready.2 ]; do sleep 0.05; done; exit 9; fi
trap 'grep -o peer_failed $MUSTER_STOP; exit 0' TERM
touch ready.$RANK
while :; do sleep 0.05; done"""]
[resources]
ranks_per_node = 3
)");
  EXPECT_EQ(done.exit, 9);
  EXPECT_EQ(done.out, "peer_failed\n") << "they are told why, as in an attempt";
  EXPECT_THAT(done.err, AllOf(HasSubstr("muster: rank 1 exited with 9; asking the others to leave\n"),
                              HasSubstr("[rank 2] peer_failed\n")));
  const auto stubborn = submit(R"(name = "a"
executor = "debug"
command = ["/bin/sh", "-c", "trap '' TERM; test $RANK = 1 && kill -9 $$; while :; do sleep 0.05; done"]
[resources]
ranks_per_node = 2
stop_grace = "100ms"
)");
  EXPECT_EQ(stubborn.exit, 137);
  EXPECT_EQ(left_behind(), 0U);
}

// A terminal sends SIGINT to the whole group, and the program decides what it does each time. A SIGTERM that only
// muster gets must reach the ranks.
TEST_F(Debug, SignalsAreForTheRanks) {
  write_file(folder_.path() / "job.toml",
             "name = \"a\"\nexecutor = \"debug\"\ncommand = [\"/bin/bash\", \"-c\", \"trap 'echo int' INT; trap 'echo "
             "term; exit 3' TERM; echo ready; while :; do sleep 0.05; done\"]\n");
  const auto line = "set -m; " + ::test::built_program("muster") + " submit " + (folder_.path() / "job.toml").native() +
                    " > out & group=$!; wait_for() { until [ $(grep -c $1 out) = $2 ]; do sleep 0.05; done; }; "
                    "wait_for ready 1; kill -INT -$group; wait_for int 1; kill -INT -$group; wait_for int 2; "
                    "kill -TERM $group; wait $group";
  const auto done = run({"/bin/bash", "-c", "cd " + folder_.path().native() + " && " + line}, here_, 30s);
  EXPECT_EQ(done.exit, 3) << done.err;
  EXPECT_EQ(read_file(folder_.path() / "out"), "ready\nint\nint\nterm\n");
  EXPECT_EQ(left_behind(), 0U);
}

TEST_F(Debug, WhatItCannotDoIsRefused) {
  const auto says = [&](const std::string& text, const std::vector<std::string>& more, const char* what) {
    const auto done = submit(text, more);
    EXPECT_EQ(done.exit, 2) << what;
    EXPECT_EQ(done.out, "") << what;
    EXPECT_THAT(done.err, HasSubstr(what));
  };
  says(kShow, {"--set", "resources.nodes=65"}, "debug runs at most 64 ranks, not 65");
  says(kShow, {"--hold"}, "--hold: debug starts at once and can't be held");
  says(kShow, {"--after", "3"}, "--after 3: debug knows no other jobs");
  says(kShow, {"--sweep", "env.A=1,2"}, "runs one job, not a sweep");
  says(kShow, {"--print-script"}, "it takes no --print-script");
  says(kShow, {"--json"}, "it takes no --json");
  says("name = \"a\"\nexecutor = \"debug\"\ncommand = [\"/no/such/program\"]\n", {}, "cannot start /no/such/program");
  EXPECT_EQ(left_behind(), 0U);
  says("name = \"a\"\nexecutor = \"debug\"\nworking_folder = \"/no/such\"\ncommand = [\"true\"]\n",
       {"--address", "10.255.255.1:1"}, "working_folder \"/no/such\": want a folder");
}

// A script in PATH takes the place of muster-worker, which is not beside muster here. It prints its arguments.
TEST_F(Debug, ARecipeRunsTheWorkerOnItsRunFile) {
  const auto bin = folder_.path() / "bin";
  std::filesystem::create_directories(bin);
  std::filesystem::copy_file(::test::built_program("muster"), bin / "muster");
  write_file(bin / "muster-worker", "#!/bin/sh\ncat \"$2\"\necho \"$MUSTER_METRICS_FILE\" >&2\n");
  std::filesystem::permissions(bin / "muster-worker", std::filesystem::perms::owner_all);
  write_file(folder_.path() / "job.toml", "name = \"a\"\nexecutor = \"debug\"\n[train]\nsteps = 7\n");
  const auto done = run({bin / "muster", "submit", folder_.path() / "job.toml"},
                        {{"TMPDIR", folder_.path()}, {"HOME", folder_.path()}}, 30s);
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("\"format\": 1"), HasSubstr("\"steps\": 7"), HasSubstr("/checkpoints\"")));
  EXPECT_THAT(done.err, HasSubstr("/metrics.rank0.jsonl"));
}

}  // namespace
}  // namespace test
