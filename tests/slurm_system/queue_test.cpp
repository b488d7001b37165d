// Goal: what people do with jobs in Slurm's queue: cancel, hold, limits, dependencies and sweeps.
// Method: real Slurm and musterd; the command line asks, Slurm's own commands tell what became of it.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

struct Queue;
class SlurmQueue : public Story<Queue> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 4, .cpus = 2, .max_array_size = 7}); }

 protected:
  static void occupy(int nodes) {
    const auto id = slurm_cluster::submit(slurm(), {"-N" + std::to_string(nodes), "--exclusive"}, "sleep 600");
    ASSERT_TRUE(slurm_cluster::becomes(slurm(), id, "State", "RUNNING"));
  }
  static void make_room() { slurm().run({"scancel", "--name=job.sh"}); }
  static std::string state_in_slurm(const std::string& id) { return slurm_cluster::field(slurm(), id, "State"); }
  /// A folder that jobs may write to, whoever they run as.
  static std::filesystem::path make_folder(const std::string& name) {
    const auto folder = muster().folder() / name;
    std::filesystem::create_directory(folder);
    std::filesystem::permissions(folder, std::filesystem::perms::all);
    return folder;
  }
  /// The first that was submitted first.
  static std::vector<std::string> jobs_of_sweep(const std::string& sweep) {
    std::vector<std::string> jobs;
    for (const auto& job : muster().json({"list", "--sweep", sweep})) {
      jobs.push_back(std::to_string(job.at("id").get<int>()));
    }
    std::ranges::sort(jobs, {}, [](const std::string& job) { return std::stoi(job); });
    return jobs;
  }
  /// "Slurm job 12_3" of every element of a sweep.
  static std::vector<std::string> slurm_ids(const std::string& sweep) {
    std::vector<std::string> ids;
    for (const auto& job : jobs_of_sweep(sweep)) ids.push_back(stage().slurm_job(job, 1));
    return ids;
  }
  static std::string submit_sweep(const std::string& toml, const std::vector<std::string>& more) {
    const auto file = muster().folder() / "sweep.toml";
    test::write_file(file, toml);
    std::vector<std::string> arguments{"submit", file.string(), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto done = muster().cli(arguments);
    EXPECT_EQ(done.exit, 0) << done.err;
    return Json::parse(done.out).at("sweep").get<std::string>();
  }
  /// Checks what `muster why` says once Slurm gives that reason for the job; returns the action.
  static std::string expect_why(const std::string& job, const std::string& reason, const std::string& sentence,
                                const std::string& action) {
    Json why;
    const bool given = test::eventually(
        [&] {
          why = muster().json({"why", job});
          return text(why, "scheduler_reason").find(reason) != std::string::npos;
        },
        90s);
    EXPECT_TRUE(given) << reason << ": " << why.dump(1);
    EXPECT_THAT(text(why, "reason"), HasSubstr(sentence));
    EXPECT_THAT(text(why, "action"), HasSubstr(action));
    return text(why, "action");
  }
  /// Does what an action's last words say: "...: scontrol release 12."
  static void run_command_of(std::string action) {
    if (const auto at = action.find("NUMBER"); at != std::string::npos) action.replace(at, 6, "2");
    std::istringstream words(action.substr(action.rfind(": ") + 2));
    std::vector<std::string> command{std::istream_iterator<std::string>(words), {}};
    ASSERT_FALSE(command.empty());
    if (command.back().ends_with('.')) command.back().pop_back();
    const auto done = slurm().run(command);
    EXPECT_EQ(done.exit, 0) << action << "\n" << done.err;
  }
  static bool all_are(const std::string& sweep, const std::set<std::string>& states) {
    const auto jobs = muster().json({"list", "--sweep", sweep});
    return std::ranges::all_of(jobs, [&](const Json& job) { return states.contains(text(job, "state")); });
  }
};

TEST_F(SlurmQueue, CancelReachesQueuedAndRunningJobs) {
  const auto running = muster().submit(shell({.script = "sleep 600", .resources = "stop_grace = \"5s\"\n"}));
  stage().until_running(running, 1);
  occupy(3);
  const auto queued = muster().submit(shell({.script = "true", .nodes = 4}));
  muster().until_state(queued, "queued");
  const auto running_id = stage().slurm_job(running, 1), queued_id = stage().slurm_job(queued, 1);
  EXPECT_EQ(muster().cli({"cancel", queued, running}).exit, 0);
  muster().until_state(queued, "cancelled");
  muster().until_state(running, "cancelled");
  EXPECT_TRUE(slurm_cluster::becomes(slurm(), queued_id, "State", "CANCELLED"));
  EXPECT_TRUE(test::eventually([&] { return state_in_slurm(running_id) != "RUNNING"; }, 60s));
}

TEST_F(SlurmQueue, AHeldJobStaysInTheQueueUntilItIsReleased) {
  occupy(4);
  const auto job = muster().submit(shell({.script = "true"}));
  muster().until_state(job, "queued");
  EXPECT_EQ(muster().cli({"hold", job}).exit, 0);
  const auto id = stage().slurm_job(job, 1);
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), id, "Reason", "JobHeldUser"));
  make_room();
  ASSERT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).size() == 1; }, 60s));
  EXPECT_EQ(state_in_slurm(id), "PENDING");
  EXPECT_EQ(muster().cli({"release", job}).exit, 0);
  EXPECT_EQ(muster().until_state(job, "succeeded").at("attempts").size(), 1U);
}

// Slurm refuses even those whom it has had before.
TEST_F(SlurmQueue, AClosedPartitionKeepsAJobsNextAttemptWaitingUntilItOpens) {
  const auto job = muster().submit(shell({.script = "[ $MUSTER_ATTEMPT = 2 ] || sleep 600"}));
  stage().until_running(job, 1);
  ASSERT_EQ(slurm().run({"scontrol", "update", "partitionname=main", "state=drain"}).exit, 0);
  ASSERT_EQ(slurm().run({"scontrol", "requeue", stage().slurm_job(job, 1)}).exit, 0);
  Json why;
  const bool told = test::eventually(
      [&] {
        why = muster().json({"why", job});
        return text(why, "reason").find("not available (inactive or drain)") != std::string::npos;
      },
      90s);
  EXPECT_TRUE(told) << why.dump(1);
  EXPECT_THAT(text(why, "action"), HasSubstr("muster cancel " + job));
  ASSERT_EQ(slurm().run({"scontrol", "update", "partitionname=main", "state=up"}).exit, 0);
  EXPECT_EQ(muster().until_state(job, "succeeded").at("attempts").size(), 2U);
}

TEST_F(SlurmQueue, ANewTimeLimitReachesAQueuedAndARunningJob) {
  const auto running = muster().submit(shell({.script = "sleep 600", .resources = "time_limit = \"50m\"\n"}));
  stage().until_running(running, 1);
  occupy(3);
  const auto queued = muster().submit(shell({.script = "true", .nodes = 4, .resources = "time_limit = \"50m\"\n"}));
  muster().until_state(queued, "queued");
  for (const auto& job : {running, queued}) {
    const auto id = stage().slurm_job(job, 1);
    EXPECT_EQ(slurm_cluster::field(slurm(), id, "TimeLimit"), "50:00");
    EXPECT_EQ(muster().cli({"limit", job, "30m"}).exit, 0);
    EXPECT_TRUE(slurm_cluster::becomes(slurm(), id, "TimeLimit", "30:00"));
  }
}

TEST_F(SlurmQueue, AJobThatDependsOnAnotherIsHandedOverOnceThatHasEnded) {
  const auto first =
      muster().submit(shell({.script = "cd $MUSTER_CHECKPOINT_FOLDER/..; while [ ! -e go ]; do sleep 0.1; done"}));
  const auto after = [&](const std::string& condition) {
    return muster().submit(shell({.script = "true"}), {"--after", condition + first});
  };
  const auto second = after(""), at_its_end = after("ended:"), for_its_failure = after("failed:");
  stage().until_running(first, 1);
  for (const auto& job : {second, at_its_end, for_its_failure}) {
    EXPECT_EQ(muster().show(job).at("state"), "pending");
    EXPECT_EQ(muster().show(job).at("attempts").size(), 0U);
  }
  test::write_file(muster().data() / "jobs" / first / "go", "");
  muster().until_state(second, "succeeded");
  muster().until_state(at_its_end, "succeeded");
  const auto never = muster().until_state(for_its_failure, "cancelled");
  EXPECT_EQ(never.at("attempts").size(), 0U);
  EXPECT_THAT(text(never, "reason"), HasSubstr("job " + first));
}

// Slurm keeps the throttle that the job file asks for, and muster keeps no limit of its own.
TEST_F(SlurmQueue, ASweepWithAThrottleOfSlurmIsOneArrayAndAFailingElementHarmsNoOther) {
  occupy(4);
  const auto go = muster().folder() / "go";
  const auto sweep =
      submit_sweep(shell({.script = "until [ -e " + go.string() + " ]; do sleep 0.1; done; [ $STEP != 3 ] || exit 5",
                          .requeue = "max_failed = 0\n",
                          .more = "[slurm]\narray_parallelism = 2\n[env]\nSTEP = \"0\"\n"}),
                   {"--sweep", "env.STEP=0..5"});
  ASSERT_TRUE(test::eventually([&] { return all_are(sweep, {"queued"}); }, 60s));
  std::set<std::string> arrays;
  for (const auto& id : slurm_ids(sweep)) {
    EXPECT_THAT(id, HasSubstr("_"));
    arrays.insert(id.substr(0, id.find('_')));
  }
  EXPECT_EQ(arrays.size(), 1U);
  make_room();
  std::ptrdiff_t most = 0;
  const auto at_once = [&] {
    const auto jobs = stage().slurm_jobs(false);
    most = std::max(most, std::ranges::count_if(jobs, [](const std::string& line) {
                      return line.find(" RUNNING ") != std::string::npos;
                    }));
    return most;
  };
  EXPECT_TRUE(test::eventually([&] { return at_once() == 2; }, 60s));
  test::write_file(go, "");
  ASSERT_TRUE(test::eventually([&] { return at_once() > 2 || all_are(sweep, {"succeeded", "failed"}); }, 60s));
  EXPECT_EQ(most, 2);
  int failed = 0;
  for (const auto& job : muster().json({"list", "--sweep", sweep})) {
    if (text(job, "state") != "failed") continue;
    ++failed;
    const auto view = muster().show(std::to_string(job.at("id").get<int>()));
    EXPECT_EQ(attempt(view, 1).at("exit_code"), 5);
  }
  EXPECT_EQ(failed, 1);
}

// Slurm refuses the array for now, and people go on deciding.
TEST_F(SlurmQueue, WhatPeopleDoWhileASweepCannotBeHandedOverCounts) {
  ASSERT_EQ(slurm().run({"scontrol", "update", "partitionname=main", "state=drain"}).exit, 0);
  const auto sweep = submit_sweep(shell({.script = "echo $STEP >> ran; sleep 1",
                                         .resources = "time_limit = \"50m\"\n",
                                         .requeue = "max_failed = 0\nmax_controller_lost = 0\n",
                                         .more = "[env]\nSTEP = \"0\"\n"}),
                                  {"--sweep", "env.STEP=0..3"});
  const auto jobs = jobs_of_sweep(sweep);
  ASSERT_EQ(jobs.size(), 4U);
  const auto &first = jobs[0], &held = jobs[1], &longer = jobs[2], &cancelled = jobs[3];
  const auto refused = [&] {
    return text(muster().json({"why", longer}), "reason").find("(inactive or drain)") != std::string::npos;
  };
  ASSERT_TRUE(test::eventually(refused, 60s));
  EXPECT_EQ(muster().cli({"hold", held}).exit, 0);
  EXPECT_EQ(muster().cli({"limit", longer, "40m"}).exit, 0);
  EXPECT_EQ(muster().cli({"cancel", cancelled}).exit, 0);
  ASSERT_EQ(slurm().run({"scontrol", "update", "partitionname=main", "state=up"}).exit, 0);
  EXPECT_EQ(slurm_cluster::field(slurm(), stage().until_handed_over(longer), "TimeLimit"), "40:00");
  EXPECT_EQ(slurm_cluster::field(slurm(), stage().until_handed_over(first), "TimeLimit"), "50:00");
  for (const auto& job : {first, longer}) muster().until_state(job, "succeeded");
  EXPECT_EQ(test::read_file(muster().folder() / "ran").size(), 4U) << "two lines: neither the held nor the cancelled";
  EXPECT_EQ(muster().show(held).at("attempts").size(), 0U);
  EXPECT_EQ(muster().cli({"release", held}).exit, 0);
  EXPECT_EQ(muster().until_state(held, "succeeded").at("attempts").size(), 1U);
  EXPECT_THAT(test::read_file(muster().folder() / "ran"), HasSubstr("1\n"));
}

TEST_F(SlurmQueue, AnElementsNextAttemptIsAJobOfItsOwn) {
  const auto sweep = submit_sweep(shell({.script = "[ $MUSTER_ATTEMPT = 2 ] || [ $STEP = 0 ] || exit 3",
                                         .requeue = "max_failed = 1\n",
                                         .more = "[env]\nSTEP = \"0\"\n"}),
                                  {"--sweep", "env.STEP=0..2"});
  ASSERT_TRUE(test::eventually([&] { return all_are(sweep, {"succeeded"}); }, 60s));
  std::multiset<std::size_t> attempts;
  for (const auto& job : jobs_of_sweep(sweep)) attempts.insert(muster().show(job).at("attempts").size());
  EXPECT_THAT(attempts, testing::ElementsAre(1U, 2U, 2U));
}

// The first fails at once, and would come back beside the array.
TEST_F(SlurmQueue, ASweepKeepsItsLimitWhenAnElementComesBack) {
  const auto folder = make_folder("one-at-a-time");
  const auto alone =
      "cd " + folder.string() + "; mkdir running || touch overlap; sleep 1; rmdir running; echo $STEP >> ran";
  const auto sweep = submit_sweep(shell({.script = "[ $MUSTER_ATTEMPT = 2 ] || [ $STEP != 0 ] || exit 3; " + alone,
                                         .requeue = "max_failed = 1\n",
                                         .more = "[env]\nSTEP = \"0\"\n"}),
                                  {"--sweep", "env.STEP=0..3", "--parallel", "1"});
  ASSERT_TRUE(test::eventually([&] { return all_are(sweep, {"succeeded"}); }, 90s));
  EXPECT_FALSE(std::filesystem::exists(folder / "overlap")) << "two ran at a time";
  EXPECT_EQ(test::read_file(folder / "ran").size(), 8U) << "four lines";
}

// A hold in Slurm's queue gives the slot back. The release needs a slot again before Slurm is asked.
TEST_F(SlurmQueue, AnElementThatIsReleasedWaitsForItsTurn) {
  occupy(4);
  const auto folder = make_folder("turns");
  const auto sweep = submit_sweep(
      shell({.script = "cd " + folder.string() + "; touch at.$STEP; until [ $STEP = 0 -o -e go ]; do sleep 0.1; done",
             .more = "[env]\nSTEP = \"0\"\n"}),
      {"--sweep", "env.STEP=0..1", "--parallel", "1"});
  const auto is_there = [&](const std::string& name) { return std::filesystem::exists(folder / name); };
  const auto jobs = jobs_of_sweep(sweep);
  ASSERT_EQ(jobs.size(), 2U);
  muster().until_state(jobs[0], "queued");
  EXPECT_EQ(text(muster().show(jobs[1]), "state"), "pending") << "it is handed over when a slot comes free";
  const auto held = stage().slurm_job(jobs[0], 1);
  EXPECT_EQ(muster().cli({"hold", jobs[0]}).exit, 0);
  ASSERT_TRUE(slurm_cluster::becomes(slurm(), held, "Reason", "JobHeldUser"));
  muster().until_state(jobs[1], "queued");
  make_room();
  ASSERT_TRUE(test::eventually([&] { return is_there("at.1"); }, 60s)) << "it need not wait for the release";
  EXPECT_EQ(muster().cli({"release", jobs[0]}).exit, 0);
  const auto waits = [&] {
    return text(muster().json({"why", jobs[0]}), "reason").starts_with("released, and waits for its turn");
  };
  EXPECT_TRUE(test::eventually(waits, 60s));
  EXPECT_EQ(slurm_cluster::field(slurm(), held, "Reason"), "JobHeldUser");
  EXPECT_FALSE(is_there("at.0"));
  test::write_file(folder / "go", "");
  for (const auto& job : jobs) muster().until_state(job, "succeeded");
}

TEST_F(SlurmQueue, ASweepIsCancelledInOneGo) {
  occupy(4);
  const auto sweep = submit_sweep(shell({.script = "true", .more = "[env]\nSTEP = \"0\"\n"}),
                                  {"--sweep", "env.STEP=0..3", "--parallel", "2"});
  ASSERT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).size() == 3; }, 60s)) << "two and ours";
  EXPECT_EQ(muster().cli({"cancel", "--sweep", sweep}).exit, 0);
  EXPECT_TRUE(test::eventually([&] { return all_are(sweep, {"cancelled"}); }, 60s));
  EXPECT_TRUE(test::eventually([&] { return stage().slurm_jobs(false).size() == 1; }, 60s)) << "but ours";
}

TEST_F(SlurmQueue, CancellingOneElementLeavesTheOthers) {
  const auto go = muster().folder() / "others-go";
  const auto sweep = submit_sweep(
      shell({.script = "while [ ! -e " + go.string() + " ]; do sleep 0.1; done", .more = "[env]\nSTEP = \"0\"\n"}),
      {"--sweep", "env.STEP=0..2"});
  ASSERT_TRUE(test::eventually([&] { return all_are(sweep, {"queued", "running"}); }, 60s));
  const auto one = jobs_of_sweep(sweep).front();
  EXPECT_EQ(muster().cli({"cancel", one}).exit, 0);
  test::write_file(go, "");
  ASSERT_TRUE(test::eventually([&] { return all_are(sweep, {"succeeded", "cancelled"}); }, 60s));
  for (const auto& job : muster().json({"list", "--sweep", sweep})) {
    EXPECT_EQ(text(job, "state"), std::to_string(job.at("id").get<int>()) == one ? "cancelled" : "succeeded");
  }
}

// Four elements have a node each, two wait for one. These nodes are one machine: a thread for each is plenty.
TEST_F(SlurmQueue, WhatHappensToOneElementOfATrainingSweepIsThatElementsAlone) {
  const auto sweep = submit_sweep(training({.steps = 160,
                                            .every_steps = 0,
                                            .step_delay_ms = 200,
                                            .nodes = 1,
                                            .ranks_per_node = 1,
                                            .partition = "low",
                                            .resources = "time_limit = \"50m\"\n",
                                            .more = "exclusive = true\n[env]\nOMP_NUM_THREADS = \"1\"\n"}),
                                  {"--sweep", "train.seed=0..5"});
  const auto jobs = jobs_of_sweep(sweep);
  ASSERT_EQ(jobs.size(), 6U);
  const auto &requeued = jobs[0], &preempted = jobs[1], &cancelled = jobs[2], &calm = jobs[3], &waiting = jobs[4],
             &behind = jobs[5];
  for (const auto& job : {requeued, preempted, cancelled, calm}) muster().until_step(job, 4);
  std::map<std::string, std::string> ids;
  for (const auto& job : jobs) ids[job] = stage().slurm_job(job, 1);
  const auto id = [&](const std::string& job) { return ids.at(job); };
  for (const auto& job : {waiting, behind}) EXPECT_EQ(text(muster().show(job), "state"), "queued");
  for (const auto& job : jobs) EXPECT_THAT(id(job), HasSubstr(id(calm).substr(0, id(calm).find('_') + 1)));

  const auto is_held = [&](const std::string& job) {
    return slurm_cluster::becomes(slurm(), id(job), "Reason", "JobHeldUser");
  };
  EXPECT_EQ(muster().cli({"hold", waiting}).exit, 0);
  EXPECT_TRUE(is_held(waiting));
  EXPECT_NE(slurm_cluster::field(slurm(), id(behind), "Reason"), "JobHeldUser");
  EXPECT_EQ(muster().cli({"hold", behind}).exit, 0);
  EXPECT_TRUE(is_held(behind));
  EXPECT_EQ(slurm().run({"scontrol", "requeue", id(requeued)}).exit, 0);
  const auto node = stage().node_of_rank(preempted, 0);
  slurm_cluster::submit(slurm(), {"-p", "high", "-w", node, "--exclusive"}, "sleep 1");
  EXPECT_EQ(slurm().run({"scancel", id(cancelled)}).exit, 0);
  EXPECT_EQ(muster().cli({"limit", calm, "40m"}).exit, 0);
  EXPECT_EQ(muster().cli({"limit", waiting, "30m"}).exit, 0);
  EXPECT_TRUE(slurm_cluster::becomes(slurm(), id(waiting), "TimeLimit", "30:00"));
  EXPECT_TRUE(slurm_cluster::becomes(slurm(), id(calm), "TimeLimit", "40:00"));
  EXPECT_EQ(slurm_cluster::field(slurm(), id(preempted), "TimeLimit"), "50:00");

  EXPECT_EQ(muster().cli({"release", waiting}).exit, 0);

  const auto ended = muster().until_state(cancelled, "cancelled");
  EXPECT_THAT(text(attempt(ended, 1), "reason"), HasSubstr("not through muster"));
  for (const auto& [job, cause] : {std::pair(requeued, "requeued"), std::pair(preempted, "preempted")}) {
    const auto after = muster().until_state(job, "succeeded");
    ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
    EXPECT_EQ(text(attempt(after, 1), "cause"), cause) << text(attempt(after, 1), "reason");
    EXPECT_GE(attempt(after, 2).at("resumed_from_step").get<int>(), 4);
  }
  EXPECT_EQ(muster().until_state(calm, "succeeded").at("attempts").size(), 1U);
  EXPECT_EQ(muster().until_state(waiting, "succeeded").at("attempts").size(), 1U);
  EXPECT_TRUE(is_held(behind)) << "still";
}

// Each with a command that works where there is one.
TEST_F(SlurmQueue, WhyAJobWaitsInSlurmIsSaidWithWhatToDo) {
  const std::string two_nodes = "time_limit = \"1h\"\n";
  const auto in_queue = [](const std::string& resources, int nodes, const std::string& more) {
    const auto job = muster().submit(shell({.script = "true", .nodes = nodes, .resources = resources, .more = more}));
    muster().until_state(job, "queued");
    return job;
  };
  occupy(2);
  const auto sweep = submit_sweep(shell({.script = "sleep 600",
                                         .resources = "stop_grace = \"1s\"\n",
                                         .more = "[slurm]\nexclusive = true\narray_parallelism = 1\n"
                                                 "[env]\nSTEP = \"0\"\n"}),
                                  {"--sweep", "env.STEP=0..5"});
  ASSERT_EQ(slurm().run({"scontrol", "update", "nodename=node4", "state=drain", "reason=story"}).exit, 0);
  ASSERT_EQ(slurm().run({"scontrol", "create", "partitionname=short", "nodes=ALL", "maxtime=1"}).exit, 0);
  ASSERT_TRUE(test::eventually([&] { return all_are(sweep, {"queued", "running"}); }, 60s));
  const auto elements = jobs_of_sweep(sweep);
  stage().until_running(elements[0], 1);

  const auto resources = in_queue(two_nodes, 2, "");
  expect_why(resources, "Resources", "the nodes it needs are busy", "fewer nodes");
  const auto priority = in_queue(two_nodes, 2, "");
  expect_why(priority, "Priority", "higher priority are first", "less time");
  const auto long_one = in_queue(two_nodes, 1, "[slurm]\npartition = \"short\"\n");
  expect_why(long_one, "PartitionTimeLimit", "longer than the 1m", "muster limit " + long_one + " 1m;");
  expect_why(in_queue("", 1, "[slurm]\nnodelist = \"node4\"\n"), "ReqNodeNotAvail", "drained or reserved: node4.",
             "let the job use other nodes");

  const auto id = stage().slurm_job(priority, 1);
  ASSERT_EQ(slurm().run({"scontrol", "uhold", id}).exit, 0);
  const auto held = expect_why(priority, "JobHeldUser", "owner holds it in Slurm", "scontrol release " + id);
  run_command_of(held);
  expect_why(priority, "Priority", "", "");
  ASSERT_EQ(slurm().run({"scontrol", "update", "JobId=" + id, "StartTime=now+1hour"}).exit, 0);
  const auto begins = expect_why(priority, "BeginTime", "may not start before", "scontrol update JobId=" + id);
  run_command_of(begins);
  expect_why(priority, "Priority", "", "");

  const auto array = stage().slurm_job(elements[0], 1).substr(0, stage().slurm_job(elements[0], 1).find('_'));
  const auto limited = expect_why(elements[1], "JobArrayTaskLimit", "As many elements", "JobId=" + array + " ");
  run_command_of(limited);
  const auto throttle = slurm().run({"scontrol", "show", "job", array}).out;
  EXPECT_THAT(throttle, HasSubstr("ArrayTaskThrottle=2"));

  EXPECT_EQ(slurm().run({"scontrol", "update", "nodename=node4", "state=resume"}).exit, 0);
}

}  // namespace
}  // namespace story
