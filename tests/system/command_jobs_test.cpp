// Goal: people bring their own trainers: any program gets the same environment, logs, requeue and cancel.
// Method: shell scripts under the real controller.
#include <signal.h>

#include <algorithm>

#include "tests/system/world.h"

namespace test {
namespace {

TEST(CommandJobs, EveryRankSeesItsPlaceAndWhatTheUserSetIsKept) {
  World world;
  world.start_daemon();
  const auto job = world.submit(
      "name = \"env\"\ncommand = [\"/bin/sh\", \"-c\", 'echo \"$RANK $LOCAL_RANK $NODE_RANK $WORLD_SIZE "
      "$LOCAL_WORLD_SIZE "
      "$MASTER_ADDR $MASTER_PORT $GREETING\"']\n[resources]\nranks_per_node = 2\n[env]\nMASTER_PORT = \"4242\"\n"
      "GREETING = \"two words; $HOME\"\n");
  world.until_state(job, "succeeded");
  EXPECT_EQ(world.cli({"logs", job, "--rank", "1"}).out, "1 1 0 2 2 127.0.0.1 4242 two words; $HOME\n");
  EXPECT_EQ(world.cli({"logs", job, "--rank", "0"}).out, "0 0 0 2 2 127.0.0.1 4242 two words; $HOME\n");
  const auto none = world.cli({"logs", job, "--rank", "7"});
  EXPECT_EQ(none.exit, 2);
  EXPECT_NE(none.err.find("muster logs: job " + job + " has no rank 7; its ranks are 0 to 1"), std::string::npos)
      << none.err;
}

/// Runs `muster` in a shell of its own, with these variables besides.
Finished from_shell(World& world, const std::string& line, const std::map<std::string, std::string>& more) {
  auto variables = world.client_environment();
  variables["MUSTER"] = World::program("muster");
  for (const auto& [name, value] : more) variables[name] = value;
  return run({"/bin/bash", "-c", "cd " + world.folder().native() + " && " + line}, variables, 60s);
}

// Nothing of musterd's shell, and of the submitter's what says which programs are found; the same in each attempt.
TEST(CommandJobs, RunInTheSubmittersEnvironmentAndNotInTheDaemons) {
  World world({.data = {}, .daemon_environment = {{"SECRET_OF_THE_DAEMON", "x"}, {"VIRTUAL_ENV", "/the/daemons"}}});
  world.start_daemon();
  std::filesystem::create_directories(world.folder() / "venv/bin");
  const auto tool = world.folder() / "venv/bin/only-in-my-venv";
  write_file(
      tool,
      "#!/bin/sh\nenv | sort > draft\nmv draft env.$MUSTER_ATTEMPT\ntest $MUSTER_ATTEMPT = 2 || exec sleep 600\n");
  std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  write_file(world.folder() / "job.toml", "name = \"a\"\ncommand = [\"only-in-my-venv\"]\n[env]\nLR = 3\n");
  const auto path = (world.folder() / "venv/bin").native() + ":/usr/bin:/bin";
  const auto submitted = from_shell(world, "\"$MUSTER\" submit job.toml --env HF_TOKEN",
                                    {{"PATH", path}, {"VIRTUAL_ENV", "/mine"}, {"HF_TOKEN", "hf_abc"}, {"FOO", "bar"}});
  ASSERT_EQ(submitted.exit, 0) << submitted.err;
  const auto job = submitted.out.substr(0, submitted.out.find('\n'));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(world.folder() / "env.1"); }, 60s));
  world.until_state(job, "running");
  EXPECT_EQ(from_shell(world, "\"$MUSTER\" requeue " + job, {{"VIRTUAL_ENV", "/another"}}).exit, 0);
  world.until_state(job, "succeeded");
  for (const auto* attempt : {"env.1", "env.2"}) {
    const auto seen = read_file(world.folder() / attempt);
    for (const auto& line : {"PATH=" + path, std::string("VIRTUAL_ENV=/mine"), std::string("HF_TOKEN=hf_abc"),
                             std::string("LR=3"), std::string("PYTHONUNBUFFERED=1")}) {
      EXPECT_NE(seen.find(line + "\n"), std::string::npos) << line << "\n" << seen;
    }
    for (const auto* name : {"SECRET_OF_THE_DAEMON", "FOO=", "MUSTER_ADDRESS", "MUSTER_TOKEN"}) {
      EXPECT_EQ(seen.find(name), std::string::npos) << name << "\n" << seen;
    }
  }
  const auto shown = world.cli({"show", job}).out + world.cli({"show", job, "--json"}).out;
  EXPECT_EQ(shown.find("hf_abc"), std::string::npos) << shown;
  EXPECT_NE(shown.find("HF_TOKEN=********"), std::string::npos) << shown;
}

TEST(CommandJobs, AJobThatEndedIsSubmittedAgainLikeItWas) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job("echo $WORD $VIRTUAL_ENV"), {"--env", "WORD=first"});
  world.until_state(job, "succeeded");
  const auto refused = world.cli({"requeue", job});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_NE(refused.err.find("to run it once more, muster submit --like " + job), std::string::npos) << refused.err;
  const auto again =
      from_shell(world, "\"$MUSTER\" submit --like " + job + " --env WORD=second", {{"VIRTUAL_ENV", "/no"}});
  ASSERT_EQ(again.exit, 0) << again.err;
  const auto second = again.out.substr(0, again.out.find('\n'));
  world.until_state(second, "succeeded");
  EXPECT_EQ(world.cli({"logs", second}).out, "second\n");
  const auto piped = from_shell(world, "\"$MUSTER\" spec " + job + " | \"$MUSTER\" submit -", {{"VIRTUAL_ENV", "/no"}});
  ASSERT_EQ(piped.exit, 0) << piped.err;
  const auto third = piped.out.substr(0, piped.out.find('\n'));
  world.until_state(third, "succeeded");
  EXPECT_EQ(world.cli({"logs", third}).out, "first\n");
}

TEST(CommandJobs, CancelSendsTermThenKillAndTheJobNeverComesBack) {
  World world;
  world.start_daemon();
  const auto job = world.submit(
      "name = \"stubborn\"\ncommand = [\"/bin/bash\", \"-c\", \"trap 'echo asked' TERM; touch ready; "
      "while true; do sleep 0.05; done\"]\n"
      "[resources]\nstop_grace = \"1s\"\n");
  world.until_state(job, "running");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(world.folder() / "ready"); }, 60s));
  EXPECT_EQ(world.cli({"cancel", job}).exit, 0);
  const auto after = world.until_state(job, "cancelled");
  EXPECT_EQ(after.at("attempts").size(), 1U);
  EXPECT_EQ(after.at("attempts")[0].at("cause"), "cancelled");
  EXPECT_EQ(world.cli({"requeue", job}).exit, 2);
  EXPECT_EQ(world.cli({"wait", job}).exit, 1);
  EXPECT_NE(world.cli({"logs", job}).out.find("asked"), std::string::npos);
}

TEST(CommandJobs, RequeueOfARunningJobStartsTheNextAttempt) {
  World world;
  world.start_daemon();
  const auto job =
      world.submit(shell_job("echo attempt $MUSTER_ATTEMPT; if [ $MUSTER_ATTEMPT = 1 ]; then exec sleep 600; fi"));
  world.until_state(job, "running");
  EXPECT_EQ(world.cli({"requeue", job}).exit, 0);
  const auto after = world.until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U);
  EXPECT_EQ(after.at("attempts")[0].at("cause"), "requeued");
  EXPECT_EQ(world.cli({"logs", job, "--attempt", "2"}).out, "attempt 2\n");
  // Admins read in musterd's log what became of jobs and attempts.
  const auto log = world.daemon_log();
  std::size_t at = 0;
  for (const char* line : {": submitted by ", ": attempt 1 started on ", "requeue", ": attempt 2 started on ",
                           ": every rank exited with 0"}) {
    at = log.find(line, at);
    ASSERT_NE(at, std::string::npos) << line << log;
  }
}

TEST(CommandJobs, TheTimeLimitEndsAnAttemptWithItsOwnCause) {
  World world;
  world.start_daemon();
  const auto job = world.submit(
      "name = \"slow\"\ncommand = [\"/bin/sleep\", \"600\"]\n[resources]\ntime_limit = \"1s\"\n"
      "[requeue]\nmax_timed_out = 0\n");
  const auto after = world.until_state(job, "failed");
  EXPECT_EQ(after.at("attempts")[0].at("cause"), "timed_out");
}

TEST(CommandJobs, ExitCodesTellTheResult) {
  World world;
  world.start_daemon();
  const auto file = world.folder() / "five.toml";
  write_file(file, shell_job("exit 93"));
  const auto waited = world.cli({"submit", "--wait", file});
  EXPECT_EQ(waited.exit, 1);
  EXPECT_EQ(waited.out, "1\n") << "data on stdout is the job id alone";
  EXPECT_NE(waited.err.find("93"), std::string::npos) << waited.err;
  EXPECT_EQ(world.show("1").at("attempts").size(), 1U);
  EXPECT_EQ(world.cli({"show", "77"}).exit, 3);
  const auto sleeper = world.submit(shell_job("exec sleep 600"));
  EXPECT_EQ(world.cli({"wait", sleeper, "--timeout", "300ms"}).exit, 124);
  const auto followed = world.cli({"submit", "--follow", file});
  EXPECT_EQ(followed.exit, 1);
}

TEST(CommandJobs, AProgramThatIsNotThereFailsOnceAndSaysSo) {
  World world;
  world.start_daemon();
  const auto job = world.submit("name = \"typo\"\ncommand = [\"/bin/no-such-program\"]\n");
  const auto after = world.until_state(job, "failed");
  EXPECT_EQ(after.at("attempts").size(), 1U);
  EXPECT_NE(after.at("reason").get<std::string>().find("/bin/no-such-program"), std::string::npos)
      << after.at("reason");
}

// It saves five more steps, and dies.
TEST(CommandJobs, AFlakyProgramThatSavesDoesAllItsStepsWithDefaultBudgets) {
  World world;
  world.start_daemon();
  const auto job = world.submit(
      shell_job("cd $MUSTER_CHECKPOINT_FOLDER; step=$(ls | grep -c step-); step=$((step * 5 + 5)); echo > step-$step; "
                "[ $step -ge 60 ] || { echo \"RuntimeError: flaky at $step\" >&2; exit 1; }",
                "backoff_max = \"200ms\"\n"));
  const auto after = world.until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 12U) << after.dump(1);
  EXPECT_TRUE(std::filesystem::exists(world.checkpoints(job) / "step-60"));
  EXPECT_EQ(after.at("attempts")[3].at("reason"), "rank 0 exited with 1: RuntimeError: flaky at 20");
}

TEST(CommandJobs, AProgramThatWritesAFileAtItsStartAndFailsIsNotStartedForEver) {
  World world;
  world.start_daemon();
  const std::string backoff = "backoff_max = \"200ms\"\n";
  const std::string writes = "date +%N > $MUSTER_CHECKPOINT_FOLDER/config.json; ";
  const auto broken = world.submit(shell_job(writes + "echo 'ModuleNotFoundError: torch' >&2; exit 1", backoff));
  const auto silent = world.submit(shell_job(writes + "exit 1", backoff));
  const auto after = world.until_state(broken, "failed");
  EXPECT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  const auto spent = world.until_state(silent, "failed");
  EXPECT_EQ(spent.at("attempts").size(), 4U) << spent.dump(1);
}

TEST(CommandJobs, TheSameErrorTwiceIsTheLastAndTheReasonHoldsIt) {
  World world;
  world.start_daemon();
  const auto job = world.submit(
      "name = \"broken\"\ncommand = [\"/usr/bin/python3\", \"-c\", 'raise RuntimeError(f\"no data at {object()}\")']\n"
      "[requeue]\nbackoff_initial = \"100ms\"\n");
  const auto after = world.until_state(job, "failed");
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  const auto reason = after.at("reason").get<std::string>();
  EXPECT_EQ(reason.find("rank 0 exited with 1: RuntimeError: no data at <object object at 0x"), 0U) << reason;
  EXPECT_NE(reason.find("; same error twice; not tried again"), std::string::npos) << reason;
  EXPECT_EQ(after.at("attempts")[1].at("error").get<std::string>().find("RuntimeError: no data"), 0U);
  EXPECT_NE(world.cli({"why", job}).out.find("RuntimeError: no data at"), std::string::npos);
}

TEST(CommandJobs, NothingIsSaidOfStepsThatAProgramDoesNotTell) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job("[ $MUSTER_ATTEMPT = 2 ] || exit 3"));
  const auto after = world.until_state(job, "succeeded");
  EXPECT_TRUE(after.at("step").is_null()) << after.dump(1);
  EXPECT_FALSE(after.at("reports").get<bool>());
  EXPECT_TRUE(after.at("ranks")[0].at("step").is_null());
  for (const auto& attempt : after.at("attempts")) EXPECT_TRUE(attempt.at("resumed_from_step").is_null());
  const auto listed = world.json({"list"})[0];
  EXPECT_TRUE(listed.at("step").is_null()) << listed.dump(1);
  EXPECT_TRUE(listed.at("attempts")[0].at("resumed_from_step").is_null());
}

TEST(CommandJobs, AStoppedProgramIsSilentAndKeysInVainAreNamed) {
  World world;
  world.start_daemon();
  const auto file = world.folder() / "stopped.toml";
  write_file(file, shell_job("[ $MUSTER_ATTEMPT = 2 ] || exec sleep 600") +
                       "[liveness]\nheartbeat_interval = \"200ms\"\nsilent_after = \"1s\"\nhung_after = \"5s\"\n");
  const auto submitted = world.cli({"submit", file});
  ASSERT_EQ(submitted.exit, 0) << submitted.err;
  const std::string note = "liveness.hung_after has no effect while this program reports no steps";
  EXPECT_NE(submitted.err.find("muster submit: note: " + note), std::string::npos) << submitted.err;
  const std::string job = "1";
  EXPECT_NE(world.cli({"show", job}).out.find(note), std::string::npos);
  EXPECT_NE(world.cli({"why", job}).out.find(note), std::string::npos);
  signal_rank(world.until(job, [](const Json& view) { return !view.at("ranks").empty(); }), 0, SIGSTOP);
  const auto after = world.until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts")[0].at("cause"), "rank_silent");
  EXPECT_NE(after.at("attempts")[0].at("reason").get<std::string>().find("(its process is stopped)"), std::string::npos)
      << after.dump(1);
}

// A survivor that saved would leave a checkpoint of another step than the dead rank's.
TEST(CommandJobs, SurvivorsOfADeadRankAreToldNotToSaveAndACancelledRankIsTold) {
  World world;
  world.start_daemon();
  const std::string leaves =
      "trap 'cp $MUSTER_STOP $MUSTER_ATTEMPT_FOLDER/told-$RANK; exit 99' TERM; "
      "touch $MUSTER_ATTEMPT_FOLDER/ready-$RANK; while :; do sleep 0.05; done";
  const auto job = world.submit(shell_job(leaves, "[resources]\nranks_per_node = 2\n"));
  const auto file = [&](const std::string& attempt, const std::string& name) {
    return world.data() / "jobs" / job / ("attempt-" + attempt) / name;
  };
  const auto ready = [&](const std::string& attempt) {
    return eventually(
        [&] {
          return std::filesystem::exists(file(attempt, "ready-0")) && std::filesystem::exists(file(attempt, "ready-1"));
        },
        30s);
  };
  ASSERT_TRUE(ready("1"));
  // The program of a rank may be ready before musterd has heard of its process.
  const auto begun = world.until(job, [](const Json& view) {
    return view.at("ranks").size() == 2 && view.at("ranks").at(1).at("pid").get<int>() > 1;
  });
  signal_rank(begun, 1, SIGKILL);
  ASSERT_TRUE(ready("2"));
  const auto told = Json::parse(read_file(file("1", "told-0")));
  EXPECT_EQ(told.at("why"), "peer_failed");
  EXPECT_EQ(told.at("save"), false);
  ASSERT_EQ(world.cli({"cancel", job}).exit, 0);
  world.until_state(job, "cancelled");
  const auto cancelled = Json::parse(read_file(file("2", "told-1")));
  EXPECT_EQ(cancelled.at("why"), "cancelled");
  EXPECT_EQ(cancelled.at("save"), true);
}

TEST(CommandJobs, AJobSubmitsAnotherToItsOwnController) {
  World world;
  world.start_daemon();
  write_file(world.folder() / "inner.toml", "name = \"inner\"\ncommand = [\"true\"]\n");
  // Nothing but the job itself leads to its controller: the usual places are empty, and no variable names one.
  const auto outer = world.submit("name = \"outer\"\ncommand = [\"" + World::program("muster").native() +
                                  "\", \"submit\", \"" + (world.folder() / "inner.toml").native() +
                                  "\"]\n[env]\nHOME = \"/nowhere\"\nXDG_DATA_HOME = \"\"\n");
  world.until_state(outer, "succeeded");
  const auto inner = std::to_string(std::stoi(outer) + 1);
  EXPECT_EQ(world.until_state(inner, "succeeded").at("name"), "inner");
}

TEST(CommandJobs, ALineOfTenMegabytesIsKeptWhole) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job("head -c 10000000 /dev/zero | tr '\\0' x; echo; echo end"));
  world.until_state(job, "succeeded");
  const auto logs = world.cli({"logs", job});
  EXPECT_EQ(logs.out.size(), 10000000U + 1 + 4);
  EXPECT_EQ(world.cli({"logs", job, "--tail", "1"}).out, "end\n");
}

/// A folder with commands of these names that only say something.
std::string commands_that_say(const TemporaryFolder& folder, const std::string& text) {
  for (const char* name : {"sbatch", "sinfo"}) {
    const auto file = folder.path() / name;
    write_file(file, "#!/bin/sh\necho '" + text + "' >&2\nexit 1\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  return folder.path().string() + ":/usr/bin:/bin";
}

// Goal: a controller without Slurm says which part of it is missing, and what to do.
// Method: musterd where nothing of Slurm is there, where its configuration is missing, and where nobody wants it.
TEST(WithoutSlurm, TheMissingPartIsNamed) {
  TemporaryFolder folder;
  const auto commands = commands_that_say(folder, "nothing");
  const auto file = folder.path() / "job.toml";
  write_file(file, shell_job("true"));
  struct Case {
    World::Options options;
    std::string says;
  };
  for (auto& [options, says] : {
           Case{{.data = {}, .daemon_flags = {}, .daemon_environment = {{"PATH", "/nowhere"}}},
                "there is no sbatch in musterd's PATH"},
           Case{
               {.data = {}, .daemon_flags = {}, .daemon_environment = {{"PATH", commands}, {"SLURM_CONF", "/no/conf"}}},
               "SLURM_CONF names /no/conf, which does not exist; set SLURM_CONF to"},
           Case{{.data = {}, .daemon_flags = {"--slurm", "no"}}, "musterd was started with --slurm no"},
       }) {
    World world(options);
    world.start_daemon();
    for (const auto& arguments : {std::vector<std::string>{"partitions"}, {"submit", "--print-script", file}}) {
      const auto refused = world.cli(arguments);
      EXPECT_EQ(refused.exit, 2);
      EXPECT_NE(refused.err.find("this controller has no Slurm: " + says), std::string::npos) << refused.err;
    }
    EXPECT_NE(world.cli({"doctor", "--json"}).out.find(says), std::string::npos);
    const auto nodes = world.cli({"nodes"});
    EXPECT_EQ(nodes.exit, 0) << "this machine is listed: " << nodes.err;
    const auto local = world.cli({"submit", "--print-script", "--executor", "local", file});
    EXPECT_EQ(local.exit, 2);
    EXPECT_NE(local.err.find("executor \"local\": its ranks are started as processes"), std::string::npos) << local.err;
    EXPECT_EQ(local.err.find("no Slurm"), std::string::npos) << local.err;
  }
}

TEST(WithoutSlurm, WhoInsistsOnItIsRefusedAtTheStart) {
  TemporaryFolder folder;
  const auto commands = commands_that_say(folder, "sinfo: fatal: Could not establish a configuration source");
  for (const auto& [path, says] : {std::pair<std::string, std::string>("/nowhere", "there is no sbatch"),
                                   {commands, "no usable configuration (sinfo: fatal: Could not establish a "}}) {
    World world(
        {.data = {}, .daemon_flags = {"--slurm", "yes"}, .daemon_environment = {{"PATH", path}, {"SLURM_CONF", ""}}});
    EXPECT_EQ(world.launch_daemon().wait(20s), 2);
    EXPECT_NE(world.daemon_log().find("musterd: --slurm yes: "), std::string::npos) << world.daemon_log();
    EXPECT_NE(world.daemon_log().find(says), std::string::npos) << world.daemon_log();
  }
}

}  // namespace
}  // namespace test
