// The client with prepared answers in the words of Slurm 22.05.
#include "slurm/slurm_client.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "tests/slurm/scripted_runner.h"

namespace slurm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;
using namespace std::chrono_literals;

constexpr auto kNoController = "Unable to contact slurm controller (connect failure)\n";

struct ClientTest : ::testing::Test {
  ScriptedRunner runner;
  Client client{runner, {.conf = "/lab/slurm.conf", .ids_per_command = 2, .separator = "~"}};

  void answer(const std::string& program, base::CommandResult result) {
    runner.on(program, [result](const base::Command&) { return result; });
  }
  std::string arguments(std::size_t i) const {
    std::string all;
    for (const auto& word : runner.commands.at(i).argv) all += (all.empty() ? "" : " ") + word;
    return all;
  }
};

TEST_F(ClientTest, ASubmissionGivesItsId) {
  answer("sbatch", finished(0, "12;lab\n", "sbatch: a word from the site\n"));
  const auto id = client.submit("#!/bin/bash\n", {"--hold"}, {5});
  EXPECT_EQ(std::get<JobId>(id), (JobId{12, {}}));
  EXPECT_EQ(arguments(0), "sbatch --parsable --hold");
  EXPECT_EQ(runner.commands[0].input, "#!/bin/bash\n");
  EXPECT_THAT(runner.commands[0].keep_fds, ElementsAre(5));
}

TEST_F(ClientTest, WhatSbatchIsGivenIsNotOurs) {
  answer("sbatch", finished(0, "12\n"));
  answer("squeue", finished(0));
  static_cast<void>(client.submit("x"));
  static_cast<void>(client.list());
  using Variable = std::pair<std::string, std::string>;
  EXPECT_THAT(runner.commands[0].environment, ElementsAre(::testing::Pair("SLURM_CONF", "/lab/slurm.conf"),
                                                          ::testing::Pair("PATH", HasSubstr("/usr/bin"))))
      << "a job gets sbatch's environment";
  EXPECT_FALSE(runner.commands[0].inherit);
  EXPECT_TRUE(runner.commands[1].inherit);
  EXPECT_THAT(runner.commands[1].environment, Contains(Variable("SLURM_TIME_FORMAT", "%s")));
  for (const auto& command : runner.commands) {
    EXPECT_THAT(command.unset, IsSupersetOf({"SLURM_*", "SBATCH_*", "SQUEUE_*"}));
  }
}

TEST_F(ClientTest, AJobGetsWhatItWasGivenAndAWayToSrun) {
  ClientOptions options;
  options.programs = "/opt/slurm/bin/";
  Client elsewhere(runner, options);
  answer("/opt/slurm/bin/sbatch", finished(0, "12\n"));
  static_cast<void>(elsewhere.submit("x", {}, {}, {{"A", "b"}, {"PATH", "/venv/bin:/bin"}, {"SBATCH_QOS", "high"}}));
  static_cast<void>(elsewhere.submit("x", {}, {}, {{"PATH", "/opt/slurm/bin:/bin"}}));
  using Variable = std::pair<std::string, std::string>;
  EXPECT_THAT(runner.commands[0].environment,
              IsSupersetOf({Variable("A", "b"), Variable("PATH", "/venv/bin:/bin:/opt/slurm/bin")}));
  EXPECT_THAT(runner.commands[0].environment, ::testing::Not(Contains(::testing::Key("SBATCH_QOS"))))
      << "sbatch would take it for an option";
  EXPECT_THAT(runner.commands[1].environment, Contains(Variable("PATH", "/opt/slurm/bin:/bin")));
}

TEST_F(ClientTest, ARefusalIsSlurmsOwnWord) {
  answer("sbatch", finished(1, "",
                            "sbatch: error: invalid partition specified: nope\n"
                            "sbatch: error: Batch job submission failed: Invalid partition name specified\n"));
  const auto refused = client.submit("x");
  EXPECT_EQ(std::get<Refused>(refused).why,
            "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified");
}

// Slurm may have accepted the submission before the failure.
TEST_F(ClientTest, AFailureWithoutAWordOfSbatchsThatProvesItIsNoRefusal) {
  for (const auto* text :
       {"", "a site's epilogue failed\n", "Invalid partition name specified\n",
        "hook: error: Unable to contact slurm controller (connect failure)\n",
        "sbatch: error: Batch job submission failed: Unspecified error\n",
        "sbatch: error: Batch job submission failed: I/O error writing script/environment to file\n"}) {
    answer("sbatch", finished(1, "", text));
    const auto failed = client.submit("x");
    ASSERT_TRUE(std::holds_alternative<Unsure>(failed)) << text;
    EXPECT_TRUE(std::get<Unsure>(failed).ended);
  }
  answer("sbatch", finished(1, "", "a word from the site\n/usr/bin/sbatch: unrecognized option '--nonsense'\n"));
  EXPECT_EQ(std::get<Refused>(client.submit("x")).kind, Refusal::kUsers);
}

// sbatch writes this line, waits and retries, and may then succeed. A later failure may be that of a wrapper.
TEST_F(ClientTest, ALineAfterWhichSbatchGoesOnProvesNothing) {
  const std::string waits = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n";
  for (const auto& text : {waits, waits + "site-wrapper: could not write audit line\n",
                           std::string("sbatch: Job creation temporarily disabled, retrying\n"),
                           std::string("sbatch: error: Slurm job queue full, sleeping and retrying\n"),
                           waits + "sbatch: error: Invalid --gres: taken without it\n",
                           std::string("sbatch: warning: Invalid --nice given\n"),
                           std::string("sbatch: error: Unable to contact slurm controller (connect failure)\n"),
                           std::string("sbatch: error: Batch job submission failed: Invalid qos specification\n"
                                       "sbatch: error: something else\n")}) {
    answer("sbatch", finished(1, "", text));
    const auto failed = client.submit("x");
    ASSERT_TRUE(std::holds_alternative<Unsure>(failed)) << text;
    EXPECT_TRUE(std::get<Unsure>(failed).ended) << text;
  }
  answer("sbatch", finished(1, "", waits + "sbatch: error: Batch job submission failed: Invalid qos specification\n"));
  EXPECT_EQ(std::get<Refused>(client.submit("x")).kind, Refusal::kUsers) << "it has given up";
  answer("sbatch",
         finished(1, "",
                  waits + "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: "
                          "Job violates accounting/QOS policy (job submit limit)\n"));
  EXPECT_EQ(std::get<Refused>(client.submit("x")).kind, Refusal::kTooMany);
}

TEST_F(ClientTest, WhoPrintsAJobsNumberHasAJob) {
  const auto refused = "sbatch: error: Batch job submission failed: Invalid partition name specified\n";
  for (const auto* out : {"12\n", "12;lab\n", "Submitted batch job 12\n", "a word from the site\n12\n"}) {
    answer("sbatch", finished(1, out, refused));
    EXPECT_TRUE(std::holds_alternative<Unsure>(client.submit("x"))) << out;
  }
  answer("sbatch", finished(1, "Welcome 2 our cluster\n", refused));
  EXPECT_TRUE(std::holds_alternative<Refused>(client.submit("x")));
}

// Some sites rename the real sbatch and put a wrapper in its place.
TEST_F(ClientTest, AnSbatchThatWasRenamedIsUnderstood) {
  const std::string refused = "error: Batch job submission failed: Invalid partition name specified\n";
  for (const auto* program : {"sbatch", "sbatch.real", "sbatch-22.05", "/opt/slurm/bin/sbatch.real"}) {
    answer("sbatch", finished(1, "", std::string(program) + ": " + refused + "site: it failed\n"));
    EXPECT_TRUE(std::holds_alternative<Refused>(client.submit("x"))) << program;
  }
  for (const auto* program : {"site-sbatch", "my sbatch", "srun"}) {
    answer("sbatch", finished(1, "", std::string(program) + ": " + refused));
    EXPECT_TRUE(std::holds_alternative<Unsure>(client.submit("x"))) << program;
  }
  answer("sbatch", finished(1, "", "sbatch.real: unrecognized option '--x'\n"));
  EXPECT_TRUE(std::holds_alternative<Unsure>(client.submit("x"))) << "what else it says proves nothing";
}

TEST_F(ClientTest, AJobIsFoundByItsNumberUnlessNobodyAnswers) {
  answer("scontrol", finished(0,
                              "JobId=12 JobName=a b=c UserId=ada(1000) Priority=4 JobState=RUNNING Reason=None "
                              "Dependency=(null) Requeue=1 Restarts=2 SubmitTime=1795253486 StartTime=1795253490 "
                              "NodeList=node[1-2] WorkDir=/my folder/x StdErr=/dev/null Comment=mine \n"));
  const auto found = client.find(12);
  ASSERT_TRUE(found) << found.why();
  ASSERT_THAT(*found, SizeIs(1));
  EXPECT_EQ(arguments(0), "scontrol -o show job 12");
  const auto& job = found->front();
  EXPECT_EQ(job.id, (JobId{12, {}}));
  EXPECT_EQ(job.state.state, JobState::kRunning);
  EXPECT_EQ(job.restarts, 2U);
  EXPECT_EQ(job.submitted, Time(1795253486s));
  EXPECT_EQ(job.work_folder, "/my folder/x");
  EXPECT_EQ(job.comment, "mine");
  answer("scontrol", finished(1, "", "slurm_load_jobs error: Invalid job id specified\n"));
  ASSERT_TRUE(client.find(12));
  EXPECT_THAT(*client.find(12), SizeIs(0));
  answer("scontrol", finished(0));
  EXPECT_TRUE(client.find(12).unreachable()) << "nothing is not none";
}

TEST_F(ClientTest, ElementsOfAnArrayThatHaveNotStartedAreFoundOneByOne) {
  answer("scontrol", finished(0,
                              "JobId=14 ArrayJobId=14 ArrayTaskId=2-3%1 JobName=a JobState=PENDING Reason=Resources\n"
                              "JobId=15 ArrayJobId=14 ArrayTaskId=0 JobName=a JobState=RUNNING Reason=None\n"));
  const auto found = client.find(14);
  ASSERT_TRUE(found) << found.why();
  ASSERT_THAT(*found, SizeIs(3));
  EXPECT_EQ((*found)[0].id, (JobId{14, 2}));
  EXPECT_EQ((*found)[1].id, (JobId{14, 3}));
  EXPECT_EQ((*found)[2].id, (JobId{14, 0}));
  EXPECT_EQ((*found)[2].state.state, JobState::kRunning);
}

// An element that is not in the list may be gone, or may be in the missing part.
TEST_F(ClientTest, AListOfElementsThatIsCutShortIsNotUnderstood) {
  answer("scontrol",
         finished(0, "JobId=14 ArrayJobId=14 ArrayTaskId=0,2,4,6,... JobName=a JobState=PENDING Reason=None\n"));
  EXPECT_TRUE(client.find(14).unreachable());
  EXPECT_THAT(client.find(14).why(), HasSubstr("cut short: 0,2,4,6,..."));
  EXPECT_THAT(runner.commands.at(0).environment,
              Contains(std::pair<std::string, std::string>("SLURM_BITSTR_LEN", "0")));
}

TEST_F(ClientTest, WhatCannotHaveReachedSlurmIsUnreachable) {
  for (const auto* text :
       {"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
        "sbatch: error: ClusterName needs to be specified\nsbatch: fatal: Unable to process configuration file\n",
        "sbatch: error: If munged is up, restart with --num-threads=10\nsbatch: error: Munge encode failed: "
        "Failed to access \"/run/munge\": No such file or directory\nsbatch: error: Batch job submission failed: "
        "Protocol "
        "authentication error\n",
        "sbatch.real: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n"}) {
    answer("sbatch", finished(1, "", text));
    EXPECT_TRUE(std::holds_alternative<Unreachable>(client.submit("x"))) << text;
  }
  ScriptedRunner nothing;
  EXPECT_THAT(std::get<Unreachable>(Client(nothing, {}).submit("x")).why, HasSubstr("sbatch: not found in PATH"));
}

TEST_F(ClientTest, ALostAnswerIsUnsure) {
  for (const auto* text :
       {"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive failure)\n",
        "sbatch: error: Batch job submission failed: Unexpected message received\n"}) {
    answer("sbatch", finished(1, "", text));
    EXPECT_TRUE(std::holds_alternative<Unsure>(client.submit("x"))) << text;
  }
  runner.on("sbatch", too_slow);
  EXPECT_THAT(std::get<Unsure>(client.submit("x")).why, HasSubstr("no answer within 30000 ms"));
  answer("sbatch", killed_by(9));
  EXPECT_TRUE(std::holds_alternative<Unsure>(client.submit("x")));
  answer("sbatch", finished(0, "Submitted?\n"));
  EXPECT_TRUE(std::holds_alternative<Unsure>(client.submit("x"))) << "accepted, but under which id?";
}

TEST_F(ClientTest, AListIsOneQueryFieldByField) {
  answer("squeue", finished(0));
  const auto jobs = client.list("alice");
  ASSERT_TRUE(jobs) << jobs.why();
  EXPECT_THAT(*jobs, SizeIs(0));
  EXPECT_THAT(arguments(0), HasSubstr("squeue -h -a --local -r -t all --noconvert -O JobArrayID:~,State:~"));
  EXPECT_THAT(arguments(0), HasSubstr("Comment:~ -u alice"));
  EXPECT_THAT(runner.commands, SizeIs(1));
}

TEST_F(ClientTest, NoAnswerIsNeverAnEmptyList) {
  const std::vector<base::CommandResult> failures = {
      finished(1, "", std::string("slurm_load_jobs error: ") + kNoController), finished(0, "", kNoController),
      finished(0, "slurm_load_jobs error\n"), killed_by(15)};
  for (const auto& failure : failures) {
    answer("squeue", failure);
    EXPECT_TRUE(client.list().unreachable());
  }
  runner.on("squeue", too_slow);
  EXPECT_TRUE(client.list().unreachable());
  answer("squeue", finished(1, "", "squeue: error: Invalid user: nobody\n"));
  EXPECT_EQ(client.list("nobody").why(), "Invalid user: nobody");
  EXPECT_TRUE(client.list("nobody").refused());
}

TEST_F(ClientTest, ACutListIsNotUnderstood) {
  runner.on("squeue",
            [](const base::Command& command) { return finished(0, std::string(command.max_output_bytes + 1, 'x')); });
  const auto jobs = client.list();
  EXPECT_TRUE(jobs.unreachable());
  EXPECT_THAT(jobs.why(), HasSubstr("answer not understood"));
}

TEST_F(ClientTest, TheSeparatorCanNotBeForeseen) {
  Client fresh(runner, {});
  answer("squeue", finished(0));
  static_cast<void>(fresh.list());
  static_cast<void>(fresh.list());
  EXPECT_NE(arguments(0), arguments(1));
}

TEST_F(ClientTest, ManyIdsAreSeveralCommands) {
  answer("scancel", finished(0));
  EXPECT_TRUE(client.cancel({{1, {}}, {2, 3}, {4, {}}}));
  ASSERT_THAT(runner.commands, SizeIs(2));
  EXPECT_EQ(arguments(0), "scancel 1 4");
  EXPECT_EQ(arguments(1), "scancel 2_3");
}

TEST_F(ClientTest, ElementsOfOneArrayAreCancelledTogether) {
  answer("scancel", finished(0));
  std::vector<JobId> jobs = {{12, 9}, {7, {}}, {12, 2}, {12, 0}, {12, 1}, {13, 5}, {12, 4}, {12, 2}};
  EXPECT_TRUE(client.cancel(jobs));
  ASSERT_THAT(runner.commands, SizeIs(2)) << "three ids, two a command";
  EXPECT_EQ(arguments(0), "scancel 7 12_[0-2,4,9]");
  EXPECT_EQ(arguments(1), "scancel 13_5");
}

TEST_F(ClientTest, CancellingNothingAsksNobody) {
  EXPECT_TRUE(client.cancel({}));
  EXPECT_THAT(runner.commands, SizeIs(0));
}

TEST_F(ClientTest, AJobThatIsOverNeedsNoCancelling) {
  answer("scancel", finished(1, "", "scancel: error: Kill job error on job id 8: Invalid job id specified\n"));
  EXPECT_TRUE(client.cancel({{8, {}}}));
  answer("scancel", finished(229));
  EXPECT_TRUE(client.cancel({{8, {}}}));
  answer("scancel", finished(1, "", "scancel: error: Kill job error on job id 8: Access/permission denied\n"));
  EXPECT_THAT(client.cancel({{8, {}}}).why(), HasSubstr("Access/permission denied"));
  answer("scancel", finished(1, "", std::string("scancel: error: Kill job error on job id 8: ") + kNoController));
  EXPECT_TRUE(client.cancel({{8, {}}}).unreachable());
}

// A slow sacct needs a longer limit than scontrol, and scancel needs a shorter one than sbatch.
TEST_F(ClientTest, EachCommandHasItsOwnTimeLimit) {
  Client limited(runner, {.submit_limit = 1s, .list_limit = 2s, .change_limit = 3s, .history_limit = 4s});
  for (const auto* program : {"sbatch", "squeue", "scancel", "scontrol", "sacct"}) answer(program, finished(0));
  const auto limit_of = [&](const auto& ask) {
    runner.commands.clear();
    ask();
    return runner.commands.empty() ? 0ms : runner.commands.front().time_limit;
  };
  EXPECT_EQ(limit_of([&] { static_cast<void>(limited.submit("x")); }), 1s);
  EXPECT_EQ(limit_of([&] { static_cast<void>(limited.test_only("x")); }), 1s);
  EXPECT_EQ(limit_of([&] { static_cast<void>(limited.list()); }), 2s);
  EXPECT_EQ(limit_of([&] { static_cast<void>(limited.cancel({{1, {}}})); }), 3s);
  EXPECT_EQ(limit_of([&] { static_cast<void>(limited.hold({1, {}})); }), 3s);
  EXPECT_EQ(limit_of([&] { static_cast<void>(limited.partitions()); }), 3s);
  EXPECT_EQ(limit_of([&] { static_cast<void>(limited.nodes()); }), 3s);
  EXPECT_EQ(limit_of([&] { static_cast<void>(limited.config()); }), 3s);
  EXPECT_EQ(limit_of([&] { static_cast<void>(limited.history({1})); }), 4s);
}

TEST_F(ClientTest, ARefusedChangeSaysWhetherMoreRightsWouldHelp) {
  answer("scontrol", finished(1, "", "scontrol: error: Access/permission denied for job 5\n"));
  EXPECT_TRUE(client.update_time_limit({5, {}}, std::chrono::minutes(90)).refused(Refusal::kForbidden));
  answer("scontrol", finished(1, "", "scontrol: error: Job is no longer pending execution for job 5\n"));
  EXPECT_TRUE(client.hold({5, {}}).refused(Refusal::kUnknown));
}

TEST_F(ClientTest, ChangesAreSpelledAsScontrolWantsThem) {
  answer("scontrol", finished(0));
  EXPECT_TRUE(client.hold({5, {}}));
  EXPECT_TRUE(client.release({5, {}}));
  EXPECT_TRUE(client.update_time_limit({5, {}}, std::chrono::minutes(90)));
  EXPECT_TRUE(client.update_time_limit({5, {}}, std::chrono::minutes(0)));
  EXPECT_TRUE(client.exclude({5, {}}, {"n1", "n[3-4]"}));
  EXPECT_TRUE(client.exclude({5, {}}, {}));
  std::vector<std::string> all;
  for (std::size_t i = 0; i < runner.commands.size(); ++i) all.push_back(arguments(i));
  EXPECT_THAT(
      all, ElementsAre("scontrol uhold 5", "scontrol release 5", "scontrol update JobId=5 TimeLimit=90",
                       "scontrol update JobId=5 TimeLimit=UNLIMITED", "scontrol update JobId=5 ExcNodeList=n1,n[3-4]",
                       "scontrol update JobId=5 ExcNodeList="));
}

TEST_F(ClientTest, ScontrolsOddWordForNoControllerIsUnreachable) {
  answer("scontrol", finished(1, "", "Unexpected message received for job 3\n"));
  EXPECT_TRUE(client.release({3, {}}).unreachable());
  answer("scontrol", finished(1, "", "Invalid job id specified for job 999\n"));
  EXPECT_TRUE(client.release({999, {}}).refused());
}

TEST_F(ClientTest, HistoryIsRefusedWithoutAccounting) {
  answer("sacct", finished(1, "", "Slurm accounting storage is disabled\n"));
  EXPECT_TRUE(client.history({1}).refused());
}

TEST_F(ClientTest, HistoryIsAskedInPiecesAndSortedByStart) {
  runner.on("sacct", [](const base::Command& command) {
    const auto run = [](const std::string& id, const std::string& start) {
      return id + "~COMPLETED~0:0~1795253000~" + start + "~1795254000~node1~~\n";
    };
    return finished(
        0, command.argv.back() == "1,2" ? run("2", "1795253009") + run("1", "1795253002") : run("3", "1795253005"));
  });
  const auto runs = client.history({1, 2, 3});
  ASSERT_TRUE(runs) << runs.why();
  ASSERT_THAT(*runs, SizeIs(3));
  EXPECT_EQ((*runs)[0].id.job, 1U);
  EXPECT_EQ((*runs)[1].id.job, 3U);
  EXPECT_EQ((*runs)[2].id.job, 2U);
}

TEST_F(ClientTest, TheEstimateComesInSecondsAndARefusalInWords) {
  answer("sbatch",
         finished(0, "", "sbatch: Job 4 to start at 1795253486 using 1 processors on nodes node1 in partition main\n"));
  const auto start = client.test_only("x");
  ASSERT_TRUE(start) << start.why();
  EXPECT_TRUE(start->start);
  EXPECT_EQ(arguments(0), "sbatch --test-only");
  answer("sbatch", finished(1, "", "allocation failure: Requested node configuration is not available\n"));
  EXPECT_EQ(client.test_only("x").why(), "allocation failure: Requested node configuration is not available");
}

TEST_F(ClientTest, ItsOwnConfWinsOverTheEnvironments) {
  ::setenv("SLURM_CONF", "/env.conf", 1);
  Client plain(runner, {});
  ::unsetenv("SLURM_CONF");
  answer("squeue", finished(0));
  static_cast<void>(plain.list());
  static_cast<void>(client.list());
  using Variable = std::pair<std::string, std::string>;
  EXPECT_THAT(runner.commands[0].environment, Contains(Variable("SLURM_CONF", "/env.conf")));
  EXPECT_THAT(runner.commands[1].environment, Contains(Variable("SLURM_CONF", "/lab/slurm.conf")));
}

}  // namespace
}  // namespace slurm
