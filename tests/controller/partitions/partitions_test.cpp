// Goal: partitions' limits hold for submissions, launches and changes, through crashes; what admins want done before
// ranks start travels with each launch; people are told why a job waits.
// Method: the real controller without threads on a fake executor with a queue.
#include <gmock/gmock.h>

#include "spec/jobfile/job_file.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/partition_keys.h"
#include "tests/controller/service/bench.h"

namespace partitions::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

muster::v1::SubmitRequest command(const std::string& partition, const std::string& user = "ann") {
  muster::v1::SubmitRequest request;
  request.set_user(user);
  auto& spec = *request.mutable_spec();
  spec.set_name("script");
  spec.mutable_command()->add_argv("/bin/true");
  spec.set_working_folder("/tmp");
  jobfile::set_slurm_text(spec, "partition", partition);
  return request;
}

class Desk : public ::testing::Test {
 protected:
  Desk() {
    bench.machine->queue = true;
    executors::ClusterFacts facts;
    for (const char* name : {"low", "main"}) {
      auto& partition = facts.partitions.emplace_back();
      partition.name = name;
      partition.state = "UP";
      partition.nodes = 4;
      partition.preempt_mode = "OFF";
    }
    bench.machine->cluster = facts;
  }
  /// Adds the policy, or changes it.
  void set(const std::string& name, const std::map<std::string, std::string>& values) {
    muster::v1::SetPartitionRequest request;
    request.set_create(!known_.contains(name));
    known_.insert(name);
    request.mutable_policy()->set_name(name);
    for (const auto& [key, value] : values) {
      request.add_keys(key);
      jobfile::put(*request.mutable_policy(), *jobfile::find_partition_key(key), {value});
    }
    const auto outcome = bench.controller().set_partition(request);
    ASSERT_TRUE(outcome.ok()) << outcome.refusal().text;
  }
  void forget(const std::string& name) { known_.erase(name); }
  common::Refusal refused(const muster::v1::SubmitRequest& request) {
    const auto outcome = bench.controller().submit(request);
    EXPECT_FALSE(outcome.ok());
    return outcome.ok() ? common::Refusal{} : outcome.refusal();
  }
  std::string why(core::JobId id) { return bench.controller().why(id).value().reason(); }
  bool launched(core::JobId id) { return bench.machine->has({id, 1}); }
  std::vector<core::JobId> submit_sweep(int count, std::uint32_t parallel) {
    muster::v1::SubmitSweepRequest sweep;
    sweep.set_user("ann");
    sweep.set_parallel(parallel);
    for (int i = 0; i < count; ++i) *sweep.add_specs() = command("main").spec();
    const auto submitted = bench.controller().submit_sweep(sweep);
    EXPECT_TRUE(submitted.ok()) << submitted.refusal().text;
    bench.tick();
    return {submitted.value().job_ids().begin(), submitted.value().job_ids().end()};
  }
  /// Starts and ends its first attempt.
  void run(core::JobId id) {
    bench.executor().begin({id, 1}, {"n1"});
    bench.tick();
    bench.executor().end_all({id, 1}, {0, 0});
    bench.tick();
  }

  service::testing::Bench bench;

 private:
  std::set<std::string> known_;
};

TEST_F(Desk, ALimitIsRefusedAtSubmitAndDefaultsAreKeptWithTheJob) {
  set("main", {{"max_nodes", "2"}, {"default_account", "lab"}, {"default_time", "1h"}, {"requeue.max_failed", "9"}});
  auto big = command("main");
  big.mutable_spec()->mutable_resources()->set_nodes(3);
  const auto refusal = refused(big);
  EXPECT_EQ(refusal.kind, common::Refusal::Kind::kLimit);
  EXPECT_THAT(refusal.text, HasSubstr("max_nodes is 2, the job wants 3"));
  EXPECT_EQ(refused(command("mian")).kind, common::Refusal::Kind::kInvalid);
  const auto job = bench.submit(command("main"));
  const auto spec = bench.job(job).spec();
  EXPECT_EQ(jobfile::slurm_text(spec, "account"), "lab");
  EXPECT_EQ(spec.resources().time_limit_ms(), 3'600'000);
  EXPECT_EQ(spec.requeue().max_failed(), 9U);
  EXPECT_EQ(spec.requeue().max_rank_hung(), 2U) << "the job file's own default";
}

TEST_F(Desk, LocalJobsAreNoneOfItsBusiness) {
  set("main", {{"max_nodes", "1"}});
  auto local = command("nowhere");
  local.mutable_spec()->set_executor("local");
  EXPECT_TRUE(launched(bench.submit(local)));
}

TEST_F(Desk, ChecksAndSetupComeBeforeTheJobsOwn) {
  set("main", {{"health_check", "nvidia-smi"}, {"setup", "module load cuda"}});
  auto request = command("main");
  jobfile::set_slurm_text(*request.mutable_spec(), "health_check", "df /scratch");
  request.mutable_spec()->mutable_slurm()->add_setup("source env.sh");
  const auto job = bench.submit(request);
  const auto launch = bench.machine->get({job, 1}).request.slurm;
  EXPECT_EQ(launch.health_check, "nvidia-smi\n" + executors::own_check("df /scratch"));
  EXPECT_THAT(launch.setup, ElementsAre("module load cuda", "source env.sh"));
  EXPECT_EQ(bench.job(job).spec().slurm().setup_size(), 1) << "the job itself has not changed";
}

constexpr spec::Key kScratchKeys[] = {{.name = "slurm.scratch_pool",
                                       .kind = spec::Kind::kText,
                                       .meaning = "Only a test has this option.",
                                       .sbatch = "scratch-pool"}};

TEST_F(Desk, ANewKeyOfSlurmIsOneRow) {
  const std::string job = "name = \"script\"\nworking_folder = \"/tmp\"\ncommand = [\"/bin/true\"]\n[slurm]\n";
  const auto parsed = [](const std::string& toml) {
    return jobfile::compose(jobfile::JobSource::of_text(toml, "job.toml", "/"), {}, jobfile::FileChecks::kSkip);
  };
  EXPECT_THAT(parsed(job + "scratch_pool = \"fast one\"\n").problems, ElementsAre(HasSubstr("unknown key")));

  const jobfile::ScratchJobKeys scratch(kScratchKeys);
  EXPECT_THAT(parsed(job + "scratch_pol = \"a\"\n").problems,
              ElementsAre(HasSubstr("did you mean slurm.scratch_pool")));
  const auto file = parsed(job + "scratch_pool = \"fast one\"\n");
  ASSERT_THAT(file.problems, IsEmpty());
  muster::v1::SubmitRequest request;
  request.set_user("ann");
  *request.mutable_spec() = file.spec;
  EXPECT_EQ(bench.machine->get({bench.submit(request), 1}).request.slurm.option("scratch-pool"), "fast one");
  EXPECT_THAT(jobfile::job_file_text(file.spec), HasSubstr("scratch_pool = \"fast one\""));
}

TEST_F(Desk, AScriptIsShownAsItWouldBeSubmitted) {
  set("main", {{"health_check", "nvidia-smi"}, {"setup", "module load cuda"}, {"default_account", "lab"}});
  muster::v1::PlanScriptRequest request;
  request.set_user("ann");
  *request.add_specs() = command("main").spec();
  const auto plan = bench.controller().plan_script(request);
  ASSERT_TRUE(plan.ok()) << plan.refusal().text;
  EXPECT_THAT(plan.value().scripts(), ElementsAre("a script"));
  ASSERT_EQ(bench.machine->scripted.size(), 1U);
  const auto& asked = bench.machine->scripted.front();
  EXPECT_EQ(asked.slurm.health_check, "nvidia-smi");
  EXPECT_THAT(asked.slurm.setup, ElementsAre("module load cuda"));
  EXPECT_EQ(asked.slurm.option("account"), "lab");
  EXPECT_TRUE(bench.machine->attempts.empty()) << "nothing is submitted";
}

// Requests of a sweep after a node was lost: those that scripts are asked for against those that are launched.
TEST_F(Desk, TheScriptsOfASweepAreAskedForAsItsJobsAreLaunched) {
  const auto before = bench.submit(command("main"));
  bench.executor().tell(before, core::NodeLost{1, "n7", core::Millis(3000)});
  bench.tick();
  for (const std::uint32_t parallel : {0, 3, 0}) {
    const bool limits_running = bench.controller().list({}).total() > 6;
    if (limits_running) set("main", {{"max_running_jobs_per_user", "20"}});
    const std::uint32_t one_by_one = parallel > 0 || limits_running ? 3 : 0;
    muster::v1::PlanScriptRequest request;
    request.set_user("ann");
    request.set_is_sweep(true);
    request.set_parallel(parallel);
    for (int i = 0; i < 3; ++i) *request.add_specs() = command("main").spec();
    const auto plan = bench.controller().plan_script(request);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan.value().one_by_one(), one_by_one);
    const auto asked = bench.machine->scripted;
    const auto ids = submit_sweep(3, parallel);
    ASSERT_EQ(asked.size(), 3U);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const core::AttemptKey key{ids[i], 1};
      ASSERT_TRUE(launched(key.job));
      const auto& launch = bench.machine->get(key).request;
      EXPECT_EQ(asked[i].key, key) << "the number that comes next";
      EXPECT_EQ(asked[i].attempt_folder, launch.attempt_folder);
      EXPECT_THAT(asked[i].exclude_nodes, ElementsAre("n7"));
      EXPECT_EQ(asked[i].exclude_nodes, launch.exclude_nodes);
      EXPECT_EQ(asked[i].sweep, launch.sweep);
      EXPECT_EQ(asked[i].job_name, launch.job_name);
    }
  }
}

TEST_F(Desk, AJobOfASweepThatIsRefusedIsNamedBeforeAnyScriptIsMade) {
  set("main", {{"max_nodes", "1"}});
  muster::v1::PlanScriptRequest request;
  request.set_is_sweep(true);
  *request.add_specs() = command("main").spec();
  *request.add_specs() = command("main").spec();
  request.mutable_specs(1)->mutable_resources()->set_nodes(2);
  const auto plan = bench.controller().plan_script(request);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.refusal().text, HasSubstr("job 1 of the sweep: "));
  EXPECT_TRUE(bench.machine->scripted.empty());
}

TEST_F(Desk, SlurmsWordOnAScriptIsPassedOn) {
  muster::v1::PlanScriptRequest request;
  request.set_user("ann");
  *request.add_specs() = command("main").spec();
  bench.machine->check.refusal = "Requested node configuration is not available";
  auto check = bench.controller().check_script(request);
  ASSERT_TRUE(check.ok()) << check.refusal().text;
  EXPECT_EQ(check.value().refusal(), "Requested node configuration is not available");
  bench.machine->check = {};
  bench.machine->check.start = core::Time(core::Millis(1'700'000'000'000));
  bench.machine->check.partition = "main";
  bench.machine->check.nodes = "n[1-2]";
  check = bench.controller().check_script(request);
  ASSERT_TRUE(check.ok()) << check.refusal().text;
  EXPECT_EQ(check.value().refusal(), "");
  EXPECT_EQ(check.value().expected_start(), "2023-11-14T22:13:20.000Z");
  EXPECT_EQ(check.value().partition(), "main");
  EXPECT_EQ(check.value().nodes(), "n[1-2]");
  bench.machine->check.unreachable = "Unable to contact slurm controller";
  check = bench.controller().check_script(request);
  ASSERT_FALSE(check.ok());
  EXPECT_EQ(check.refusal().kind, common::Refusal::Kind::kUnavailable);
  EXPECT_THAT(check.refusal().text, HasSubstr("Unable to contact slurm controller"));
}

TEST_F(Desk, ALostNodeIsListedWithItsLossAsLongAsItIsLeftOut) {
  const auto job = bench.submit(command("main"));
  bench.executor().tell(job, core::NodeLost{1, "n7", core::Millis(3000)});
  bench.tick();
  auto nodes = bench.controller().list_nodes();
  ASSERT_TRUE(nodes.ok());
  ASSERT_EQ(nodes.value().nodes_size(), 1);
  EXPECT_EQ(nodes.value().nodes(0).name(), "n7");
  EXPECT_EQ(nodes.value().nodes(0).lost_by_job(), job);
  bench.clock.advance(std::chrono::minutes(11));
  nodes = bench.controller().list_nodes();
  ASSERT_TRUE(nodes.ok());
  EXPECT_EQ(nodes.value().nodes_size(), 0);
}

TEST_F(Desk, SoManyJobsOfAUserAreHandedOverAtOnceAndTheOthersSayWhy) {
  set("main", {{"max_running_jobs_per_user", "2"}});
  std::vector<core::JobId> jobs;
  for (int i = 0; i < 4; ++i) jobs.push_back(bench.submit(command("main")));
  const auto other = bench.submit(command("main", "bob"));
  const auto elsewhere = bench.submit(command("main", "bob"));
  EXPECT_TRUE(launched(jobs[0]) && launched(jobs[1]) && launched(other) && launched(elsewhere));
  bench.pass(2s);
  EXPECT_FALSE(launched(jobs[2]) || launched(jobs[3]));
  EXPECT_EQ(why(jobs[2]),
            "partition \"main\" allows ann 2 jobs at once (max_running_jobs_per_user), and so many are with Slurm");
  EXPECT_THAT(why(jobs[0]), ::testing::Not(HasSubstr("max_running_jobs_per_user")));
  bench.restart();
  bench.pass(2s);
  EXPECT_FALSE(launched(jobs[2])) << "a restart counts again";
  bench.executor().begin({jobs[0], 1}, {"n1"});
  bench.tick();
  EXPECT_FALSE(launched(jobs[2])) << "a running one counts as well";
  bench.executor().end_all({jobs[0], 1}, {0, 0});
  bench.pass(1s);
  EXPECT_TRUE(launched(jobs[2]));
  EXPECT_FALSE(launched(jobs[3]));
  set("main", {{"max_running_jobs_per_user", "3"}});
  bench.pass(1s);
  EXPECT_TRUE(launched(jobs[3])) << "the new limit counts at once";
}

TEST_F(Desk, ALimitedSweepIsHandedOverOneByOneWhereRunningJobsAreLimited) {
  set("main", {{"max_running_jobs_per_user", "3"}});
  const auto ids = submit_sweep(6, 2);
  for (std::size_t next = 2; next <= ids.size(); ++next) {
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(launched(ids[i]), i < next) << i << " of " << next;
    EXPECT_EQ(bench.machine->get({ids[next - 1], 1}).request.sweep, "") << "it waits for nobody";
    if (next < ids.size()) {
      EXPECT_EQ(why(ids[next]), "waits for its turn: at most 2 of sweep s1 have an attempt at once");
    }
    if (next == 4) bench.restart();
    run(ids[next - 2]);
  }
  EXPECT_TRUE(bench.machine->batches.empty());
}

TEST_F(Desk, ASweepIsHandedOverOneByOneWhereRunningJobsAreLimited) {
  set("main", {{"max_running_jobs_per_user", "3"}});
  const auto ids = submit_sweep(6, 0);
  EXPECT_TRUE(bench.machine->batches.empty());
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(launched(ids[i]), i < 3) << i;
}

// Arrays that could keep the number are not made there.
TEST_F(Desk, WhereRunningJobsAreLimitedMusterKeepsTheThrottleOfASweepItself) {
  set("main", {{"max_running_jobs_per_user", "3"}});
  muster::v1::SubmitSweepRequest sweep;
  sweep.set_user("ann");
  for (int i = 0; i < 3; ++i) {
    *sweep.add_specs() = command("main").spec();
    jobfile::set(*sweep.mutable_specs(i), *jobfile::find_key("slurm.array_parallelism"), std::int64_t{2});
  }
  ASSERT_TRUE(bench.controller().submit_sweep(sweep).ok());
  bench.tick();
  EXPECT_TRUE(launched(1) && launched(2));
  EXPECT_FALSE(launched(3));
}

// An array of four of six jobs is in the queue when the limit comes, and two are released later.
TEST_F(Desk, ALimitThatComesWhileASweepIsQueuedLetsNoMoreRunAtOnce) {
  muster::v1::SubmitSweepRequest sweep;
  sweep.set_user("ann");
  for (int i = 0; i < 6; ++i) {
    *sweep.add_specs() = command("main").spec();
    sweep.mutable_specs(i)->set_hold(i > 3);
  }
  ASSERT_TRUE(bench.controller().submit_sweep(sweep).ok());
  bench.tick();
  ASSERT_THAT(bench.machine->batches, ElementsAre(4U));
  set("main", {{"max_running_jobs_per_user", "2"}});
  for (const core::JobId id : {5, 6}) ASSERT_TRUE(bench.controller().release(id, "ann").ok());
  bench.pass(1s);
  for (const core::JobId id : {1, 2}) run(id);
  bench.pass(1s);
  EXPECT_FALSE(launched(5)) << "the queue may start two more at any moment";
  run(3);
  bench.pass(1s);
  EXPECT_TRUE(launched(5));
  EXPECT_FALSE(launched(6));
  run(4);
  bench.pass(1s);
  EXPECT_TRUE(launched(6));
}

TEST_F(Desk, ALimitThatGoesWhileASweepIsQueuedLetsNoMoreRunAtOnce) {
  for (const bool restarts : {false, true}) {
    set("main", {{"max_running_jobs_per_user", "9"}});
    const auto ids = submit_sweep(5, 2);
    muster::v1::RemovePartitionRequest remove;
    remove.set_name("main");
    ASSERT_TRUE(bench.controller().remove_partition(remove).ok());
    forget("main");
    if (restarts) bench.restart();
    bench.pass(1s);
    EXPECT_FALSE(launched(ids[2])) << "the first two hold the places, and the queue does not count them";
    run(ids[0]);
    EXPECT_TRUE(launched(ids[2]));
    EXPECT_FALSE(launched(ids[3]));
    for (const auto i : {1, 2, 3, 4}) run(ids[static_cast<std::size_t>(i)]);
    for (const auto id : ids) EXPECT_EQ(bench.state(id), "succeeded");
  }
}

TEST_F(Desk, ALaunchThatFailsGivesItsPlaceBack) {
  set("main", {{"max_running_jobs_per_user", "1"}});
  bench.machine->launch_later = "Slurm is down";
  const auto first = bench.submit(command("main"));
  const auto second = bench.submit(command("main"));
  bench.pass(2s);
  bench.controller().hold(first, "ann");
  bench.machine->launch_later.clear();
  bench.pass(3s);
  EXPECT_FALSE(launched(first));
  EXPECT_TRUE(launched(second));
}

TEST_F(Desk, ALaunchThatMayHaveSucceededKeepsItsPlace) {
  set("main", {{"max_running_jobs_per_user", "1"}});
  bench.machine->launch_later = "sbatch gave no answer";
  bench.machine->takes_silently = true;
  const auto first = bench.submit(command("main"));
  bench.submit(command("main"));
  bench.pass(5s);
  EXPECT_THAT(bench.machine->starts, ElementsAre(::testing::Pair(core::AttemptKey{first, 1}, 1)));
}

TEST_F(Desk, ALimitCountsWhatWasOnItsWayBeforeIt) {
  set("main", {{"max_queued_jobs_per_user", "5"}});
  bench.machine->launch_later = "sbatch gave no answer";
  bench.machine->takes_silently = true;
  const auto first = bench.submit(command("main"));
  set("main", {{"max_running_jobs_per_user", "1"}});
  bench.submit(command("main"));
  EXPECT_THAT(bench.machine->starts, ElementsAre(::testing::Pair(core::AttemptKey{first, 1}, 1)));
}

TEST_F(Desk, ALimitKeepsNobodyFromLookingForWhatMayBeThereAlready) {
  bench.submit(command("main"));
  bench.machine->launch_later = "sbatch gave no answer";
  bench.machine->takes_silently = true;
  const auto id = bench.submit(command("main"));
  set("main", {{"max_running_jobs_per_user", "1"}});
  bench.machine->launch_later.clear();
  bench.pass(3s);
  EXPECT_EQ(bench.state(id), "queued");
}

TEST_F(Desk, WhatCannotBeReadForAMomentIsNotLetInBesideTheLimit) {
  set("main", {{"max_running_jobs_per_user", "1"}});
  const auto first = bench.submit(command("main"));
  const auto second = bench.submit(command("main"));
  ASSERT_TRUE(launched(first));
  for (int times = 1; times < 8; ++times) {
    SCOPED_TRACE(times);
    bench.unreadable[second] = times;
    bench.restart();
    bench.pass(10s);
    EXPECT_LE(bench.unreadable[second], 0) << "it was asked again";
    EXPECT_FALSE(launched(second));
  }
  bench.executor().end_all({first, 1}, {0, 0});
  bench.pass(2s);
  EXPECT_TRUE(launched(second));
}

TEST_F(Desk, SoManyMayWaitAndMoreAreRefusedButAnAnswerIsGivenAgain) {
  set("main", {{"max_queued_jobs_per_user", "2"}});
  auto first = command("main");
  first.set_request_id("one");
  const auto id = bench.submit(first);
  bench.submit(command("main"));
  const auto refusal = refused(command("main"));
  EXPECT_EQ(refusal.kind, common::Refusal::Kind::kLimit);
  EXPECT_THAT(refusal.text, HasSubstr("max_queued_jobs_per_user is 2, and 2 jobs of ann wait there"));
  const auto again = bench.controller().submit(first);
  ASSERT_TRUE(again.ok()) << again.refusal().text;
  EXPECT_EQ(again.value().job_id(), id);
  EXPECT_TRUE(bench.controller().submit(command("main", "bob")).ok());
  bench.executor().begin({id, 1}, {"n1"});
  bench.tick();
  EXPECT_TRUE(bench.controller().submit(command("main")).ok()) << "one runs now";
}

TEST_F(Desk, ASweepIsRefusedAsAWhole) {
  set("main", {{"max_queued_jobs_per_user", "2"}});
  muster::v1::SubmitSweepRequest sweep;
  sweep.set_user("ann");
  for (int i = 0; i < 3; ++i) *sweep.add_specs() = command("main").spec();
  const auto outcome = bench.controller().submit_sweep(sweep);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.refusal().text, HasSubstr("max_queued_jobs_per_user is 2"));
  EXPECT_EQ(bench.controller().list({}).total(), 0);
}

TEST_F(Desk, TheTimeLimitOfAJobStaysWithinItsPartition) {
  set("main", {{"max_time", "2h"}});
  const auto job = bench.submit(command("main"));
  const auto longer = bench.controller().set_time_limit(job, 3h, "ann");
  ASSERT_FALSE(longer.ok());
  EXPECT_THAT(longer.refusal().text, HasSubstr("max_time is 2h, the job wants 3h"));
  EXPECT_FALSE(bench.controller().set_time_limit(job, 0h, "ann").ok()) << "no limit at all";
  EXPECT_TRUE(bench.controller().set_time_limit(job, 1h, "ann").ok());
}

TEST_F(Desk, ProblemsAreInTheStatus) {
  set("low", {{"preemptible", "true"}});
  ASSERT_EQ(bench.controller().status().partition_problems_size(), 1);
  EXPECT_THAT(bench.controller().status().partition_problems(0), HasSubstr("PreemptMode=OFF"));
  muster::v1::ListPartitionsRequest request;
  request.set_user("ann");
  const auto listed = bench.controller().list_partitions(request);
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed.value().partitions_size(), 2);
  EXPECT_TRUE(listed.value().partitions(0).may_use());
  EXPECT_EQ(listed.value().partitions(0).problems_size(), 1);
  EXPECT_FALSE(listed.value().partitions(1).may_use()) << "main has no policy, and low has";
}

TEST_F(Desk, WithoutSlurmThereAreNoPartitions) {
  bench.machine->queue = false;
  EXPECT_EQ(bench.controller().list_partitions({}).refusal().kind, common::Refusal::Kind::kWrongState);
  const auto nodes = bench.controller().list_nodes();
  ASSERT_TRUE(nodes.ok()) << "local jobs run on the machine of musterd";
  EXPECT_TRUE(nodes.value().has_machine());
  EXPECT_TRUE(nodes.value().nodes().empty());
}

/// Two nodes with 8 CPUs, 4000 MiB and two GPUs each in "main", which allows an hour.
executors::ClusterFacts small_cluster() {
  executors::ClusterFacts facts;
  auto& partition = facts.partitions.emplace_back();
  partition.name = "main";
  partition.state = "UP";
  partition.is_default = true;
  partition.nodes = 2;
  partition.max_time = std::chrono::hours(1);
  for (const char* name : {"n1", "n2"}) {
    auto& node = facts.nodes.emplace_back();
    node.name = name;
    node.cpus = 8;
    node.memory_bytes = std::int64_t{4000} << 20;
    node.gres = "gpu:fake:2(S:0-1)";
    node.partitions = {"main"};
  }
  return facts;
}

TEST_F(Desk, AJobThatCanNeverStartIsToldWhatIsTooMuch) {
  bench.machine->cluster = small_cluster();
  bench.pass(30s);
  struct Case {
    std::function<void(muster::v1::JobSpec&)> ask;
    const char *why, *action;
  };
  const Case cases[] = {
      {[](auto& spec) { spec.mutable_resources()->set_nodes(3); },
       "It can't start as it is: it asks for 3 nodes, and partition \"main\" has 2.",
       "and submit it with resources.nodes at most 2, or to another partition"},
      {[](auto& spec) { spec.mutable_resources()->set_time_limit_ms(7'200'000); },
       "its time limit of 2h is longer than the 1h that partition \"main\" allows", " 1h; or muster cancel "},
      {[](auto& spec) { spec.mutable_resources()->set_cpus_per_rank(99); },
       "it asks for 99 CPUs on each of 1 node, and the largest of partition \"main\" has 8 CPUs",
       "less in resources.ranks_per_node x cpus_per_rank"},
      {[](auto& spec) { jobfile::set(spec, *jobfile::find_key("slurm.mem"), std::int64_t{8000} << 20); },
       "it asks for 8000 MiB on each of 1 node, and the largest of partition \"main\" has 4000 MiB", "slurm.mem"},
      {[](auto& spec) { spec.mutable_resources()->set_gpus_per_rank(3); },
       "it asks for 3 GPUs on each of 1 node, and the largest of partition \"main\" has 2 GPUs", "gpus_per_rank"}};
  for (const auto& [ask, why, action] : cases) {
    bench.machine->word = executors::QueueWord{"12", "PartitionConfig", "Slurm's own.", "Nothing.", std::nullopt};
    auto request = command("");
    ask(*request.mutable_spec());
    const auto job = bench.submit(request);
    const auto told = bench.controller().why(job).value();
    EXPECT_THAT(told.reason(), HasSubstr(why));
    EXPECT_THAT(told.action(), HasSubstr(action));
    bench.machine->word->reason = "Priority";
    EXPECT_EQ(bench.controller().why(job).value().reason(), "Slurm's own.") << "Slurm thinks that it will start";
  }
  bench.machine->word->reason = "PartitionConfig";
  EXPECT_EQ(bench.controller().why(bench.submit(command("main"))).value().reason(), "Slurm's own.")
      << "what is wrong is not known";
}

// Slurm's estimate behind a job without a time limit is a year after that one's start.
TEST_F(Desk, AStartAYearAwayIsNoEstimate) {
  const auto now = bench.clock.wall();
  bench.machine->word =
      executors::QueueWord{"12", "Priority", "Others are first.", "Wait.", now + std::chrono::hours(24 * 365)};
  const auto job = bench.submit(command("main"));
  const auto far = bench.controller().why(job).value();
  EXPECT_EQ(far.expected_start(), "");
  EXPECT_THAT(far.reason(), HasSubstr("Others are first. When it starts can't be told: a job without a time limit"));
  bench.machine->word->expected_start = now + std::chrono::hours(24);
  const auto near = bench.controller().why(job).value();
  EXPECT_NE(near.expected_start(), "");
  EXPECT_EQ(near.reason(), "Others are first.");
}

}  // namespace
}  // namespace partitions::testing
