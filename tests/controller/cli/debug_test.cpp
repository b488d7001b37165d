// executor = "debug": muster submit becomes the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_controller.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Debug : public testing::Test {
 protected:
  Finished submit(const std::string& text, std::vector<std::string> more = {}) {
    write_file(folder_.path() / "job.toml", text);
    std::vector<std::string> arguments{MUSTER_PROGRAM, "submit", folder_.path() / "job.toml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {{"TMPDIR", folder_.path()}, {"HOME", folder_.path()}, {"MUSTER_ADDRESS", "127.0.0.1:1"}},
               30s);
  }
  TempFolder folder_;
};

constexpr const char* kShow =
    "name = \"a\"\nexecutor = \"debug\"\ncommand = [\"/bin/sh\", \"-c\", \"echo $RANK $WORLD_SIZE $A $PWD "
    "$MUSTER_JOB_ID $MUSTER_ATTEMPT; "
    "test -d $MUSTER_CHECKPOINT_FOLDER && test $MASTER_PORT -gt 0; echo oops >&2; exit 7\"]\nenv.A = \"x\"\n";

TEST_F(Debug, RunsTheProgramHereWithoutAControllerAndPassesItsExitCodeOn) {
  const auto done = submit(kShow);
  EXPECT_EQ(done.exit, 7);
  EXPECT_EQ(done.out, "0 1 x " + folder_.path().native() + " 0 1\n");
  EXPECT_THAT(done.err, AllOf(StartsWith("muster: running a here, in the foreground; its files are in "),
                              HasSubstr(folder_.path().native() + "/muster-debug-"), HasSubstr("oops\n")));
  const auto masks =
      submit("name = \"a\"\ncommand = [\"grep\", \"SigBlk\", \"/proc/self/status\"]\n", {"--executor", "debug"});
  EXPECT_EQ(masks.out, "SigBlk:\t0000000000000000\n") << "signals reach the program: none stays blocked";
}

TEST_F(Debug, WhatItCannotDoIsRefused) {
  const auto says = [&](const std::string& text, const std::vector<std::string>& more, const char* what) {
    const auto done = submit(text, more);
    EXPECT_EQ(done.exit, 2) << what;
    EXPECT_EQ(done.out, "") << what;
    EXPECT_THAT(done.err, HasSubstr(what));
  };
  says(kShow, {"--set", "resources.nodes=2"}, "debug runs one rank, not 2");
  says(kShow, {"--hold"}, "--hold: debug starts at once and can't be held");
  says(kShow, {"--after", "3"}, "--after 3: debug knows no other jobs");
  says(kShow, {"--sweep", "env.A=1,2"}, "runs one job, not a sweep");
  says(kShow, {"--print-script"}, "it has no --print-script");
  says(kShow, {"--json"}, "it has no --json");
  says("name = \"a\"\nexecutor = \"debug\"\ncommand = [\"/no/such/program\"]\n", {}, "cannot start /no/such/program");
  says("name = \"a\"\nexecutor = \"debug\"\nworking_folder = \"/no/such\"\ncommand = [\"true\"]\n",
       {"--address", "10.255.255.1:1"}, "working_folder \"/no/such\": want a folder");
}

// A stand-in for muster-worker, first in PATH where none lies beside muster: it prints what it is told.
TEST_F(Debug, ARecipeRunsTheWorkerOnItsRunFile) {
  const auto bin = folder_.path() / "bin";
  std::filesystem::create_directories(bin);
  std::filesystem::copy_file(MUSTER_PROGRAM, bin / "muster");
  write_file(bin / "muster-worker", "#!/bin/sh\ncat \"$2\"\necho \"$MUSTER_METRICS_FILE\" >&2\n");
  std::filesystem::permissions(bin / "muster-worker", std::filesystem::perms::owner_all);
  write_file(folder_.path() / "job.toml", "name = \"a\"\nexecutor = \"debug\"\n[train]\nsteps = 7\n");
  const auto done = run({bin / "muster", "submit", folder_.path() / "job.toml"},
                        {{"TMPDIR", folder_.path()}, {"HOME", folder_.path()}}, 30s);
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("\"format\": 1"), HasSubstr("\"steps\": 7"), HasSubstr("/checkpoints\"")));
  EXPECT_THAT(done.err, HasSubstr("/metrics.jsonl"));
}

}  // namespace
}  // namespace test
