// Goal: what a rank on Slurm finds: its place, its GPU, a way to rank 0 and to the controller, whatever the network is
// like; and a controller that may come and go.
// Method: real Slurm with fake GPUs; commands that print what they see; nodes with addresses of their own whose names
// nobody can resolve.
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <sstream>

#include "agent/protocol/facts.h"
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string log_of(test::World& muster, const std::string& job, int rank) {
  return test::read_file(muster.data() / "jobs" / job / "attempt-1" / "logs" /
                         ("rank-" + std::to_string(rank) + ".log"));
}

/// A job's ranks again, under sbatch and srun alone, with metrics in files.
void train_alone(Stage& stage, const std::string& job) {
  auto& muster = stage.muster();
  const auto folder = muster.folder() / "alone";
  std::filesystem::create_directories(folder);
  auto run = Json::parse(test::read_file(muster.data() / "jobs" / job / "attempt-1" / "run.json"));
  run["checkpoint"]["folder"] = (folder / "checkpoints").string();
  test::write_file(folder / "run.json", run.dump());
  const auto done =
      stage.slurm().run({"sbatch", "--wait", "--parsable", "--nodes=2", "--ntasks-per-node=2",
                         "--chdir=" + folder.string(), "--output=" + (folder / "log").string(),
                         "--wrap=srun " + test::World::program("muster-worker").string() + " --run-file run.json"},
                        60s);
  EXPECT_EQ(done.exit, 0) << done.err << test::read_file(folder / "log");
  const auto losses = [](const std::string& lines) {
    std::vector<double> all;
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
      const auto row = Json::parse(line);
      if (row.contains("loss") && row.contains("step")) all.push_back(row.at("loss").get<double>());
    }
    return all;
  };
  std::vector<double> expected;
  for (const auto& row : muster.metrics(job)) expected.push_back(row.at("loss").get<double>());
  ASSERT_FALSE(expected.empty());
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(losses(test::read_file(folder / ("metrics.rank" + std::to_string(rank) + ".jsonl"))), expected) << rank;
  }
  std::filesystem::remove_all(folder);
}

struct Ranks;
class SlurmRanks : public Story<Ranks> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2}, {}, {{"SECRET_OF_THE_DAEMON", "the daemon's"}}); }
};

// Goal: libraries of the job's environment, which the programs of muster cannot start with, are its ranks' alone.
// Method: LD_LIBRARY_PATH leads to a libstdc++.so.6 that is none. It comes from the submitter, a setup line adds to it.
TEST_F(SlurmRanks, HaveLibrariesThatMusterItselfCannotStartWith) {
  const auto folder = muster().folder() / "old-conda";
  std::filesystem::create_directories(folder);
  for (const char* library : {"libstdc++.so.6", "libgrpc++.so.1.51", "libprotobuf.so.32"}) {
    test::write_file(folder / library, "none");
  }
  const auto variables = "[submitted_env]\nLD_LIBRARY_PATH = \"" + folder.string() + "\"\nPATH = \"/usr/bin:/bin\"\n";
  const auto job = muster().submit(
      shell({.script = "echo $LD_LIBRARY_PATH",
             .requeue = "max_failed = 0\n",
             .more = "[slurm]\nsetup = [\"export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/of-setup\"]\n" + variables}));
  muster().until_state(job, "succeeded");
  EXPECT_EQ(log_of(muster(), job, 0), folder.string() + ":/of-setup\n");
}

// Blocks would put the first two on the first node.
TEST_F(SlurmRanks, AreShownWhereTheyRunWhateverTheDistribution) {
  const auto job = muster().submit(shell({.script = "echo $SLURMD_NODENAME; sleep 600",
                                          .nodes = 2,
                                          .ranks_per_node = 2,
                                          .more = "[slurm]\nsrun_args = [\"--distribution=cyclic\"]\n"}));
  const auto shown = [&] {
    std::vector<std::string> nodes;
    const auto view = muster().show(job);
    for (const auto& rank : view.at("ranks")) nodes.push_back(text(rank, "node"));
    return nodes;
  };
  EXPECT_TRUE(test::eventually(
      [&] {
        return shown() == std::vector<std::string>{"node1", "node2", "node1", "node2"};
      },
      60s))
      << ::testing::PrintToString(shown());
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto log = [&] { return log_of(muster(), job, static_cast<int>(rank)); };
    EXPECT_TRUE(test::eventually([&] { return log() == shown().at(rank) + "\n"; }, 60s)) << rank << ": " << log();
  }
}

// Setup lines see what the submitter's shell had, and may change it; [env] has the last word.
TEST_F(SlurmRanks, FindTheirSubmittersEnvironmentBelowSetupLinesAndEnv) {
  auto variables = muster().client_environment();
  variables["VIRTUAL_ENV"] = "/the/submitters";
  variables["PYTHONPATH"] = "/lib/of/the/submitter";
  variables["CONDA_PREFIX"] = "/conda";
  const auto folder = muster().folder() / "submitter";
  std::filesystem::create_directories(folder);
  test::write_file(
      folder / "job.toml",
      shell({.script = "echo $VIRTUAL_ENV $PYTHONPATH $CONDA_PREFIX",
             .more = "[slurm]\nsetup = [\"export VIRTUAL_ENV=$VIRTUAL_ENV/of-setup\"]\n[env]\nCONDA_PREFIX = "
                     "\"/mine\"\n"}));
  const auto done = test::run({test::World::program("muster"), "submit", folder / "job.toml"}, variables, 30s);
  ASSERT_EQ(done.exit, 0) << done.err;
  const auto job = done.out.substr(0, done.out.find('\n'));
  muster().until_state(job, "succeeded");
  EXPECT_EQ(log_of(muster(), job, 0), "/the/submitters/of-setup /lib/of/the/submitter /mine\n");
}

// Goal: a program on Slurm that writes a report file has curves and a true FROM, and the rank that died is named.
// Method: four ranks on two nodes write five steps; one of them dies; the second attempt goes on. Each attempt ends
// once the test has seen what it reports, for the news of an end does not wait long for it.
TEST_F(SlurmRanks, ReportWhatAnyProgramWritesIntoItsFile) {
  const std::string script = R"(tell() { echo "$1" >> $MUSTER_REPORT; }
if [ $MUSTER_ATTEMPT = 1 ]; then
  tell '{"resumed":0}'
  for i in 1 2 3 4 5; do tell "{\"step\":$i,\"loss\":$i.5}"; done
  tell '{"checkpoint":"c5","step":5}'
  while [ ! -e reported-$MUSTER_JOB_ID.1 ]; do sleep 0.1; done
  [ $RANK != 3 ] || kill -KILL $$
  sleep 600
fi
tell '{"resumed":5}'
for i in 6 7 8; do tell "{\"step\":$i,\"loss\":$i.5}"; done
while [ ! -e reported-$MUSTER_JOB_ID.2 ]; do sleep 0.1; done
)";
  const auto job = muster().submit(shell({.script = script, .nodes = 2, .ranks_per_node = 2}));
  for (const std::size_t number : {1, 2}) {
    const auto live = muster().until(job, [&](const Json& view) {
      return view.at("attempts").size() == number && attempt(view, number).at("resumed_from_step").is_number() &&
             view.at("last_checkpoint_step") == 5;
    });
    const std::filesystem::path folder = live.at("spec").at("working_folder").get<std::string>();
    test::write_file(folder / ("reported-" + job + "." + std::to_string(number)), "");
  }
  const auto done = muster().until_state(job, "succeeded");
  const auto& attempts = done.at("attempts");
  ASSERT_EQ(attempts.size(), 2u) << attempts;
  EXPECT_EQ(attempts[0].at("rank"), 3) << attempts;
  EXPECT_EQ(attempts[0].at("resumed_from_step"), 0) << attempts;
  EXPECT_EQ(attempts[1].at("resumed_from_step"), 5) << attempts;
  std::vector<std::pair<int, double>> losses;
  const auto all_are_there = [&] {
    losses.clear();
    for (const auto& row : muster().metrics(job)) losses.emplace_back(row.at("step"), row.at("loss"));
    return losses.size() >= 8;
  };
  EXPECT_TRUE(test::eventually(all_are_there, 60s));
  EXPECT_EQ(losses, (std::vector<std::pair<int, double>>{
                        {1, 1.5}, {2, 2.5}, {3, 3.5}, {4, 4.5}, {5, 5.5}, {6, 6.5}, {7, 7.5}, {8, 8.5}}));
}

// Attempt 1 ends by an error on the node of rank 3 once its checkpoint is known, attempt 2 well once its own is.
TEST_F(SlurmRanks, AreReadThroughWhatTheirJobFileNames) {
  const std::string script = R"(first=1
[ -e ckpt-$MUSTER_JOB_ID/step-4 ] && first=5
for i in $(seq $first $((first + 3))); do echo "step $i loss $i.5"; done
if [ $RANK = 0 ]; then
  mkdir -p ckpt-$MUSTER_JOB_ID/step-$((first + 3)); echo weights > ckpt-$MUSTER_JOB_ID/step-$((first + 3))/model
fi
while [ ! -e go-$MUSTER_JOB_ID.$MUSTER_ATTEMPT ]; do sleep 0.1; done
[ $MUSTER_ATTEMPT = 2 ] && exit 0
[ $RANK != 3 ] || exit 1
sleep 600)";
  const auto job = muster().submit(shell({.script = script, .nodes = 2, .ranks_per_node = 2, .more = R"([report]
checkpoints = "ckpt-$MUSTER_JOB_ID/step-*"
log = {loss = 'loss ([\d.]+)', step = 'step (\d+)'}
)"}));
  const auto live = muster().until(job, [](const Json& view) { return view.at("last_checkpoint_step") == 4; });
  const std::filesystem::path folder = live.at("spec").at("working_folder").get<std::string>();
  test::write_file(folder / ("go-" + job + ".1"), "");
  muster().until(job, [](const Json& view) { return view.at("last_checkpoint_step") == 8; });
  test::write_file(folder / ("go-" + job + ".2"), "");
  const auto done = muster().until_state(job, "succeeded");
  ASSERT_EQ(done.at("attempts").size(), 2u) << done.at("attempts");
  EXPECT_EQ(done.at("last_checkpoint_step"), 8) << done;
  std::map<int, double> losses;
  const auto all_are_there = [&] {
    for (const auto& row : muster().metrics(job)) losses[row.at("step")] = row.at("loss");
    return losses.size() >= 8;
  };
  EXPECT_TRUE(test::eventually(all_are_there, 60s));
  ASSERT_EQ(losses.size(), 8u) << muster().metrics(job);
  for (const auto& [step, loss] : losses) EXPECT_EQ(loss, step + 0.5);
}

// Sweeps of other tools call their runs so: the name is safe as Slurm's name and as a file's.
TEST_F(SlurmRanks, AJobsNameMayHoldItsSettings) {
  const std::string name = "lr=0.1,seed=3+" + std::string(100, 'x');
  const auto job = muster().submit(shell({.script = "echo $SLURM_JOB_NAME", .more = "[slurm]\noutput = \"%x.out\"\n"}),
                                   {"--name", name});
  muster().until_state(job, "succeeded");
  EXPECT_EQ(test::read_file(muster().folder() / (name + ".out")), name + "\n");
}

TEST_F(SlurmRanks, FindWhatSlurmAndSetupLinesSetAndNothingOfMusterdsOwn) {
  const auto job = muster().submit(shell({.script = "env | sort > env.$RANK; until [ -e gate ]; do sleep 0.05; done",
                                          .nodes = 2,
                                          .more = "[slurm]\nsetup = [\"export FROM_SETUP=yes\"]\n"}));
  // A job that is over before Slurm has listed it once has no nodes to show.
  const auto after = muster().until(job, [](const Json& view) {
    return view.at("ranks").size() == 2 && !text(view.at("ranks")[0], "node").empty() &&
           !text(view.at("ranks")[1], "node").empty();
  });
  test::write_file(muster().folder() / "gate", "");
  muster().until_state(job, "succeeded");
  const auto env = test::read_file(muster().folder() / "env.1");
  EXPECT_THAT(env, Not(HasSubstr("SECRET_OF_THE_DAEMON")));
  EXPECT_THAT(env, Not(HasSubstr("HOME=" + muster().folder().string() + "\n"))) << "musterd's, in these tests";
  for (const auto& line :
       {std::string("FROM_SETUP=yes"), std::string("PYTHONUNBUFFERED=1"), std::string("SLURM_PROCID=1"),
        std::string("MUSTER_NODES=2"), std::string("TORCHELASTIC_RESTART_COUNT=0"),
        "MUSTER_NODELIST=" + text(after.at("ranks")[0], "node") + "," + text(after.at("ranks")[1], "node")}) {
    EXPECT_THAT(env, HasSubstr(line + "\n"));
  }
}

TEST_F(SlurmRanks, ACommandSeesItsPlaceItsGpuAndOneMeetingPoint) {
  const auto job = muster().submit(
      shell({.script = "echo $RANK $LOCAL_RANK $NODE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $SLURMD_NODENAME "
                       "gpu=$CUDA_VISIBLE_DEVICES at=$MASTER_ADDR:$MASTER_PORT mine=$MINE",
             .nodes = 2,
             .ranks_per_node = 2,
             .resources = "gpus_per_rank = 1\n",
             .more = "[env]\nMINE = \"a b'c\"\n"}));
  const auto after = muster().until_state(job, "succeeded");
  std::set<std::string> places, points;
  for (int rank = 0; rank < 4; ++rank) {
    const auto line = log_of(muster(), job, rank);
    const auto at = line.find(" at="), mine = line.find(" mine=");
    ASSERT_NE(at, std::string::npos) << line;
    places.insert(line.substr(0, at));
    points.insert(line.substr(at + 4, mine - at - 4));
    EXPECT_THAT(line, HasSubstr("mine=a b'c"));
  }
  EXPECT_THAT(places, testing::ElementsAre("0 0 0 4 2 node1 gpu=0", "1 1 0 4 2 node1 gpu=1", "2 0 1 4 2 node2 gpu=0",
                                           "3 1 1 4 2 node2 gpu=1"));
  EXPECT_EQ(points.size(), 1U) << "all meet at one address";
  EXPECT_THAT(*points.begin(), testing::MatchesRegex("[0-9.]+:[0-9]+"));
}

// Muster knows of any program what the tasks beside its ranks see: how it ends, its own words, and whether it is
// stopped.
TEST_F(SlurmRanks, ACommandsOwnErrorIsTheReasonAndTheSameOneTwiceTheLast) {
  const auto job = muster().submit(
      shell({.script = "[ $RANK = 1 ] && { echo \"RuntimeError: no data (pid $$)\" >&2; exit 3; }; exec sleep 600",
             .nodes = 2}));
  const auto after = muster().until_state(job, "failed");
  EXPECT_EQ(after.at("attempts").size(), 2U) << stage().events(job);
  EXPECT_THAT(text(after, "reason"), HasSubstr("rank 1 exited with 3: RuntimeError: no data (pid "));
  EXPECT_THAT(text(after, "reason"), HasSubstr("; same error twice; not tried again"));
}

TEST_F(SlurmRanks, AStoppedCommandIsSilentAndSurvivorsAreToldNotToSave) {
  const auto job = muster().submit(shell(
      {.script = "[ $MUSTER_ATTEMPT = 2 ] && exit 0; trap 'cp $MUSTER_STOP $MUSTER_ATTEMPT_FOLDER/told-$RANK; exit "
                 "1' TERM; touch $MUSTER_ATTEMPT_FOLDER/ready-$RANK; while :; do sleep 0.05; [ $RANK = 1 ] && [ -e "
                 "$MUSTER_ATTEMPT_FOLDER/ready-0 ] && kill -STOP $$; done",
       .nodes = 2,
       .more = "[liveness]\nheartbeat_interval = \"200ms\"\nsilent_after = \"1s\"\n"}));
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(text(attempt(after, 1), "cause"), "rank_silent") << stage().events(job);
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("rank 1 silent for "));
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("(its process is stopped)"));
  const auto told = Json::parse(test::read_file(muster().data() / "jobs" / job / "attempt-1" / "told-0"));
  EXPECT_EQ(told.at("why"), "peer_failed");
  EXPECT_EQ(told.at("save"), false);
}

// Goal: without cgroups, too, no process of attempt 1 runs beside attempt 2, in whatever session it is.
// Method: a worker and a daemon in sessions of their own write the time down while they live. Then the rank is killed,
// in the second job its muster-agent.
TEST_F(SlurmRanks, WhatARankHasStartedInSessionsOfItsOwnNeverRunsBesideTheNextAttempt) {
  const std::string script =
      "cd $MUSTER_CHECKPOINT_FOLDER\n"
      "live() { setsid bash -c 'trap \"\" TERM HUP; while :; do date +%s%N >> '$1'; sleep 0.05; done'; }\n"
      "if [ $MUSTER_ATTEMPT = 2 ]; then date +%s%N > began; sleep 1; exit 0; fi\n"
      "live worker.log & (live daemon.log &)\n"
      "while [ ! -s worker.log ] || [ ! -s daemon.log ]; do sleep 0.02; done; touch ready\n";
  for (const std::string killed : {"rank", "muster-agent"}) {
    const auto job = muster().submit(shell({.script = script + (killed == "rank" ? "kill -9 $$" : "sleep 600")}));
    const auto folder = muster().data() / "jobs" / job / "checkpoints";
    if (killed == "muster-agent") {
      ASSERT_TRUE(test::eventually([&] { return std::filesystem::exists(folder / "ready"); }, 60s));
      const auto task = stage().pid_of_task(job, 1, 0);
      ASSERT_GT(task, 1);
      ::kill(task, SIGKILL);
    }
    muster().until_state(job, "succeeded");
    const auto began = std::stoll(test::read_file(folder / "began"));
    for (const char* file : {"worker.log", "daemon.log"}) {
      const auto lines = test::read_file(folder / file);
      const auto end = lines.find_last_not_of('\n');
      EXPECT_LT(std::stoll(lines.substr(lines.rfind('\n', end) + 1)), began) << killed << ": " << file;
    }
  }
}

TEST_F(SlurmRanks, AFlakyCommandThatSavesComesBackUntilItIsDone) {
  const auto job = muster().submit(
      shell({.script = "cd $MUSTER_CHECKPOINT_FOLDER; step=$(ls | grep -c step-); step=$((step * 10 + 10)); "
                       "echo > step-$step; [ $step -ge 60 ] || exit 1",
             .requeue = "max_failed = 1\n"}));
  const auto after = muster().until_state(job, "succeeded", 180s);
  EXPECT_EQ(after.at("attempts").size(), 6U) << stage().events(job);
}

// Nodes of this cluster are one machine: a port that each took without asking would be the same.
TEST_F(SlurmRanks, TwoTrainingsAtOnceMeetEachAtAPlaceOfItsOwn) {
  const Training what{.steps = 600, .nodes = 1};
  const std::vector<std::string> jobs{muster().submit(training(what)), muster().submit(training(what))};
  for (const auto& job : jobs) stage().until_trains(job, 1);
  for (const auto& job : jobs) EXPECT_EQ(text(attempt(muster().show(job), 1), "state"), "running");
}

// It trains for a quarter of a minute beyond the restart, which takes seconds on a busy machine.
TEST_F(SlurmRanks, ARestartOfTheControllerInTheMiddleOfTrainingLosesNothing) {
  const Training what{.step_delay_ms = 350};
  const auto job = muster().submit(training(what));
  muster().until_step(job, 15);
  const auto pids = [&] { return std::vector<pid_t>{stage().pid_of_rank(job, 1, 0), stage().pid_of_rank(job, 1, 3)}; };
  const auto before = pids();
  muster().kill_daemon();
  muster().start_daemon();
  muster().until_step(job, 30);
  // The other ranks come back by themselves, each when its next heartbeat is due.
  EXPECT_TRUE(test::eventually([&] { return pids() == before; }, 60s));
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  EXPECT_EQ(stage().submissions_of(job, 1), 1);
  std::set<int> steps;
  for (const auto& row : muster().metrics(job)) steps.insert(row.at("step").get<int>());
  EXPECT_EQ(steps.size(), 60U) << "no gap";
  stage().expect_model_of_calm_run(job, what);
}

// The job ends, and Slurm forgets nothing, while nobody follows it.
// It waits in Slurm's queue when musterd is killed, and Slurm starts it then.
TEST_F(SlurmRanks, AnAttemptThatStartsWhileTheControllerIsAwayTrainsOnceItIsBack) {
  const auto first = muster().submit(
      shell({.script = "while [ ! -e go ]; do sleep 0.1; done", .nodes = 2, .more = "[slurm]\nexclusive = true\n"}));
  stage().until_running(first, 1);
  const auto job = muster().submit(training({.steps = 20, .every_steps = 10, .step_delay_ms = 0}));
  const auto slurm_job = stage().until_handed_over(job);
  muster().kill_daemon();
  test::write_file(muster().folder() / "go", "");
  const bool runs = test::eventually(
      [&] {
        const auto all = stage().slurm_jobs();
        return std::ranges::any_of(all, [&](const auto& line) { return line.starts_with(slurm_job + " RUNNING"); });
      },
      30s);
  muster().start_daemon();
  EXPECT_TRUE(runs) << "Slurm never started job " << slurm_job;
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  std::filesystem::remove(muster().folder() / "go");
}

// Slurm stops every process of a suspended job, those that would speak for its ranks too.
TEST_F(SlurmRanks, AJobThatIsSuspendedInSlurmIsMissedByNobodyAndGoesOn) {
  const auto recipe = muster().submit(training({.steps = 120, .nodes = 1}));
  const auto go = muster().folder() / "command-goes";
  const auto command = muster().submit(shell({.script = "while [ ! -e " + go.string() + " ]; do sleep 0.1; done"}));
  stage().until_running(command, 1);
  muster().until_step(recipe, 10);
  const std::vector<std::string> slurm_jobs{stage().slurm_job(recipe, 1), stage().slurm_job(command, 1)};
  for (const auto& job : slurm_jobs) ASSERT_EQ(slurm().run({"scontrol", "suspend", job}).exit, 0) << job;
  // Longer than any rank may be silent, unless its node vouches for it.
  const bool missed = test::eventually(
      [&] {
        return muster().show(recipe).at("attempts").size() > 1 || muster().show(command).at("attempts").size() > 1;
      },
      9s);
  EXPECT_FALSE(missed) << stage().events(recipe) << stage().events(command);
  for (const auto& job : slurm_jobs) ASSERT_EQ(slurm().run({"scontrol", "resume", job}).exit, 0) << job;
  test::write_file(go, "");
  for (const auto& job : {recipe, command}) {
    EXPECT_EQ(muster().until_state(job, "succeeded").at("attempts").size(), 1U) << stage().events(job);
  }
}

// People who have no controller at all do so: `srun muster-worker` in a batch script of their own.
TEST_F(SlurmRanks, WithoutAControllerWorkersMeetByWhatSlurmTellsThem) {
  const auto job = muster().submit(training({.steps = 6, .every_steps = 0, .step_delay_ms = 0}));
  muster().until_state(job, "succeeded");
  train_alone(stage(), job);
}

TEST_F(SlurmRanks, AnEndThatNobodySawIsFoundInTheStatusFiles) {
  const auto good = muster().submit(
      shell({.script = "cd $MUSTER_CHECKPOINT_FOLDER/..; touch began; while [ ! -e go ]; do sleep 0.1; done"}));
  const auto bad = muster().submit(
      shell({.script = "cd $MUSTER_CHECKPOINT_FOLDER/..; touch began; while [ ! -e go ]; do sleep 0.1; done; exit 7",
             .requeue = "max_failed = 0\n"}));
  for (const auto& job : {good, bad}) {
    const auto began = muster().data() / "jobs" / job / "began";
    ASSERT_TRUE(test::eventually([&] { return std::filesystem::exists(began); }, 60s));
  }
  muster().kill_daemon();
  for (const auto& job : {good, bad}) test::write_file(muster().data() / "jobs" / job / "go", "");
  ASSERT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).empty(); }, 60s));
  muster().start_daemon();
  EXPECT_EQ(muster().until_state(good, "succeeded").at("attempts").size(), 1U);
  const auto after = muster().until_state(bad, "failed");
  EXPECT_EQ(attempt(after, 1).at("exit_code"), 7) << after.dump(1);
}

// The other would go on to its time limit.
TEST_F(SlurmRanks, OneOfAGangThatCameAndWentWhileMusterdWasAwayIsKnown) {
  const auto blocker = slurm_cluster::submit(slurm(), {"-N2", "--exclusive"}, "sleep 600");
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), blocker, "State", "RUNNING"));
  const auto job = muster().submit(shell({.script = "[ $RANK = 0 ] || exit 7; sleep 600",
                                          .nodes = 2,
                                          .resources = "stop_grace = \"2s\"\n",
                                          .requeue = "max_failed = 0\n",
                                          .more = "[env]\nMASTER_ADDR = \"node1\"\nMASTER_PORT = \"29400\"\n"}));
  muster().until_state(job, "queued");
  muster().kill_daemon();
  ASSERT_EQ(slurm().run({"scancel", blocker}).exit, 0);
  const auto status = muster().data() / "jobs" / job / "attempt-1" / agent::protocol::status_file(1);
  ASSERT_TRUE(test::eventually([&] { return test::read_file(status).find("\"exited\"") != std::string::npos; }, 60s));
  ASSERT_TRUE(
      test::eventually([&] { return slurm_cluster::processes_of(slurm().folder(), "muster-agent").size() == 1; }, 60s));
  muster().start_daemon();
  const auto after = muster().until_state(job, "failed");
  EXPECT_EQ(text(attempt(after, 1), "cause"), "failed");
  EXPECT_EQ(attempt(after, 1).at("rank"), 1) << after.dump(1);
  EXPECT_EQ(attempt(after, 1).at("exit_code"), 7) << after.dump(1);
}

TEST_F(SlurmRanks, AHealthCheckThatFailsIsANodeFailure) {
  const auto job = muster().submit(shell({.script = "true",
                                          .requeue = "max_node_failed = 1\n",
                                          .more = "[slurm]\nhealth_check = \"echo unwell; false\"\n"}));
  const auto after = muster().until_state(job, "failed");
  ASSERT_EQ(after.at("attempts").size(), 2U);
  EXPECT_EQ(text(attempt(after, 1), "cause"), "node_failed");
  EXPECT_THAT(text(attempt(after, 1), "reason"), HasSubstr("health check"));
}

// The lines before the ranks, and srun itself, write to Slurm's log alone.
TEST_F(SlurmRanks, WhatFailedBeforeTheRanksIsQuotedWhereThePersonLooks) {
  const auto setup = muster().submit(shell({.script = "true",
                                            .requeue = "max_failed = 0\n",
                                            .more = "[slurm]\nsetup = [\"echo no such module >&2\", \"exit 3\"]\n"}));
  const auto srun = muster().submit(shell(
      {.script = "true", .requeue = "max_failed = 0\n", .more = "[slurm]\nsrun_args = [\"--no-such-option\"]\n"}));
  for (const auto& [job, said] : {std::pair(setup, "| no such module"), std::pair(srun, "| srun: ")}) {
    const auto waited = muster().cli({"wait", job});
    EXPECT_EQ(waited.exit, 1);
    EXPECT_THAT(waited.err, HasSubstr(said));
    EXPECT_THAT(muster().cli({"show", job}).out, HasSubstr(said));
    EXPECT_THAT(muster().cli({"logs", job}).err, HasSubstr("muster logs " + job + " --slurm"));
    EXPECT_THAT(muster().cli({"logs", job, "--slurm"}).out, HasSubstr(std::string(said).substr(2)));
  }
}

// An element's log is in its array's folder.
TEST_F(SlurmRanks, TheLogOfAnArraysElementIsFoundToo) {
  const auto file = muster().folder() / "unfit.toml";
  test::write_file(
      file, shell({.script = "true",
                   .requeue = "max_failed = 0\n",
                   .more = "[slurm]\nsetup = [\"echo element $SLURM_ARRAY_TASK_ID; exit 3\"]\n[env]\nA = \"0\"\n"}));
  const auto sweep = muster().cli({"submit", file, "--sweep", "env.A=0..1", "--wait"});
  EXPECT_EQ(sweep.exit, 1) << sweep.err;
  const auto jobs = jobs_of(muster(), sweep);
  ASSERT_EQ(jobs.size(), 2U);
  for (const auto& job : jobs) {
    const auto element = text(job.at("attempts").at(0), "scheduler_job");
    const auto show = muster().cli({"show", std::to_string(job.at("id").get<int>())}).out;
    EXPECT_THAT(show, HasSubstr("| element " + element.substr(element.find('_') + 1))) << show;
  }
}

struct FarApart;
class SlurmNetwork : public Story<FarApart> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2, .separate_network = true, .unresolvable_names = true}); }

 protected:
  /// Zombies apart: who has lost its parent on a node is left to the slurmd there, which may be stopped.
  static bool lives(pid_t pid) { return !test::read_file("/proc/" + std::to_string(pid) + "/cmdline").empty(); }
  /// How a rank ended, as the agent beside it writes down a moment later; nullopt until then.
  static std::optional<agent::protocol::Exited> end_of(const std::string& job, std::uint32_t rank) {
    const auto file = muster().data() / "jobs" / job / "attempt-1" / agent::protocol::status_file(rank);
    const auto exits = agent::protocol::parse_status(test::read_file(file)).exits;
    const auto found = exits.find(rank);
    return found == exits.end() ? std::nullopt : std::optional(found->second);
  }
  /// A worker leaves by itself when the controller tells it to; the task beside it, which may hear it first, kills one
  /// that does not leave soon.
  static bool left_as_told(const std::string& job, std::uint32_t rank) {
    return end_of(job, rank).value().exit.signal == SIGKILL ||
           log_of(muster(), job, rank).find("the controller says that this attempt is over") != std::string::npos;
  }
};

TEST_F(SlurmNetwork, NodesWithAddressesOfTheirOwnAndNamesThatNobodyResolvesTrain) {
  const Training what{.steps = 20, .every_steps = 10, .step_delay_ms = 0};
  const auto job = muster().submit(training(what));
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  EXPECT_NE(text(after.at("ranks")[0], "node"), text(after.at("ranks")[3], "node"));
  train_alone(stage(), job);
}

// The ranks of any program meet by MASTER_ADDR and MASTER_PORT alone.
TEST_F(SlurmNetwork, ACommandsRanksOnTwoNodesMeetWhereTheyAreTold) {
  const auto job = muster().submit(shell({.script = R"(
if [ $RANK = 0 ]; then
  exec python3 -c 'import os, socket
here = socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
here.accept()[0].send(b"well met")'
fi
until cat < /dev/tcp/$MASTER_ADDR/$MASTER_PORT; do sleep 0.1; done)",
                                          .nodes = 2}));
  const auto after = muster().until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  EXPECT_THAT(log_of(muster(), job, 1), testing::EndsWith("well met"));
}

// Alive, but out of reach: when it comes back it is told to leave, and must not write.
// Its slurmd hears nothing, or Slurm would end the ranks; nor is any save due that the fence could refuse.
TEST_F(SlurmNetwork, ANodeCutOffIsLostAndItsRanksLeaveByMustersWordWhenItIsBack) {
  // It trains for longer than a busy machine takes to find the loss.
  const Training what{.steps = 100, .every_steps = 0, .step_delay_ms = 500, .nodes = 1, .ranks_per_node = 2};
  const auto job = muster().submit(training(what));
  muster().until_step(job, 4);
  const auto node = stage().node_of_rank(job, 0);
  const auto old = std::vector<pid_t>{stage().pid_of_rank(job, 1, 0), stage().pid_of_rank(job, 1, 1)};
  for (const pid_t pid : old) ASSERT_GT(pid, 1);
  slurm().cut_network(node);
  const auto ended = stage().until_ended(job, 1, 90s);
  EXPECT_EQ(text(attempt(ended, 1), "cause"), "node_failed") << text(attempt(ended, 1), "reason");
  for (const pid_t pid : old) EXPECT_TRUE(lives(pid)) << "pid " << pid << " was to outlive its attempt";
  const auto deaf = stage().pids_of_slurmds({node});
  for (const pid_t pid : deaf) ::kill(pid, SIGSTOP);
  slurm().mend_network(node);
  for (const pid_t pid : old) {
    EXPECT_TRUE(test::eventually([&] { return !lives(pid); }, 60s)) << "pid " << pid << " lives on";
  }
  for (const pid_t pid : deaf) ::kill(pid, SIGCONT);
  for (const std::uint32_t rank : {0U, 1U}) {
    ASSERT_TRUE(test::eventually([&] { return end_of(job, rank).has_value(); }, 60s)) << "nobody wrote how it ended";
    EXPECT_TRUE(left_as_told(job, rank)) << log_of(muster(), job, rank);
  }
  const auto after = muster().until_state(job, "succeeded", 180s);
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  EXPECT_NE(attempt(after, 2).at("nodes"), attempt(after, 1).at("nodes"));
  EXPECT_TRUE(stage().saved_steps(job, 1).empty());
  EXPECT_EQ(attempt(after, 2).at("resumed_from_step"), 0);
  stage().expect_model_of_calm_run(job, what);
}

}  // namespace
}  // namespace story
