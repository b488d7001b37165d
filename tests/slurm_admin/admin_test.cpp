// Goal: what deploy/ADMIN.md shows works on a real Slurm: partitions are opened, limited, changed and closed by command
// and by file; every limit is refused by name, defaults reach Slurm, unfit nodes get no rank; all of it is audited and
// survives a restart.
// Method: one real cluster for all tests, musterd and the command line as people use them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <sstream>

#include "tests/places.h"
#include "tests/slurm_cluster/world.h"
#include "tests/system/world.h"

namespace test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

constexpr std::chrono::seconds kReload = 20s;  // two seconds, on a machine that has time

std::string resources(const std::string& text) {
  return "[resources]\n" + text + "\n";
}
std::string in_partition(const std::string& name, const std::string& more = "") {
  return "[slurm]\npartition = \"" + name + "\"\n" + more;
}

/// Whoever runs the tests, as `id -un` says: $USER may say otherwise.
std::string own_name() {
  auto name = run({"/usr/bin/id", "-un"}, {}, 20s).out;
  while (name.ends_with('\n')) name.pop_back();
  EXPECT_FALSE(name.empty());
  return name;
}

class SlurmAdmin : public testing::Test {
 public:
  static void SetUpTestSuite() { cluster_ = std::make_unique<slurm_cluster::Cluster>(); }
  static void TearDownTestSuite() { cluster_.reset(); }

 protected:
  static slurm_cluster::Cluster& slurm() { return *cluster_; }
  World& start(std::vector<std::string> flags = {}) {
    World::Options options;
    options.daemon_flags = std::move(flags);
    options.daemon_environment = cluster_->env();
    world_ = std::make_unique<World>(std::move(options));
    world_->start_daemon();
    return *world_;
  }
  World& muster() { return *world_; }
  void TearDown() override {
    if (HasFailure() && world_) std::cerr << world_->daemon_log();
    world_.reset();
  }

  Finished admin(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"admin", "partition"});
    return world_->cli(arguments);
  }
  void must(const std::vector<std::string>& arguments) {
    const auto done = admin(arguments);
    ASSERT_EQ(done.exit, 0) << done.err;
  }
  /// Submits such a job, and returns the answer.
  Finished submit(const std::string& more) {
    const auto file = world_->folder() / "job.toml";
    write_file(file, shell_job("sleep 600", more));
    return world_->cli({"submit", file});
  }
  /// Submits it, and returns the number when Slurm has it.
  std::string in_slurm(const std::string& script, const std::string& more) {
    const auto job = world_->submit(shell_job(script, more));
    world_->until(
        job,
        [](const Json& view) {
          return !view.at("attempts").empty() && !view.at("attempts")[0].at("scheduler_job").get<std::string>().empty();
        },
        30s);
    return job;
  }
  std::string slurm_job(const std::string& job) {
    return world_->show(job).at("attempts").at(0).at("scheduler_job").get<std::string>();
  }
  Json partition(const std::string& name) {
    for (const auto& each : world_->json({"partitions"})) {
      if (each.at("name") == name) return each;
    }
    return {};
  }
  void cancel(const std::string& job) {
    world_->cli({"cancel", job});
    world_->cli({"wait", job, "--timeout", "40s"});
  }

 private:
  static inline std::unique_ptr<slurm_cluster::Cluster> cluster_;
  std::unique_ptr<World> world_;
};

/// The block of the guide that says that it is run here.
std::string guide_commands() {
  const auto guide = read_file(std::filesystem::path(::test::source_folder()) / "deploy/ADMIN.md");
  const std::string mark = "<!-- run by tests/slurm_admin -->\n```bash\n";
  const auto begin = guide.find(mark);
  if (begin == std::string::npos) return {};
  const auto from = begin + mark.size();
  return guide.substr(from, guide.find("```", from) - from);
}

TEST_F(SlurmAdmin, TheGuidesPartitionSetUpDoesWhatItSays) {
  start();
  const auto commands = guide_commands();
  ASSERT_THAT(commands, HasSubstr("muster admin partition add main"));
  auto environment = muster().client_environment();
  environment["PATH"] = ::test::build_folder() + "/bin:" + ::getenv("PATH");
  const auto done = run({"/bin/bash", "-e", "-c", commands}, environment, 120s);
  ASSERT_EQ(done.exit, 0) << done.out << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("max_nodes 4"), HasSubstr("node1"), HasSubstr("remove low")));
  EXPECT_EQ(muster().json({"admin", "audit"}).size(), 4U);
  const auto main = partition("main");
  EXPECT_EQ(main.at("policy").at("max_nodes"), 4);
  EXPECT_EQ(main.at("nodes_idle").get<int>() + main.at("nodes_used").get<int>(), 4);
  EXPECT_TRUE(main.at("may_use").get<bool>());
  EXPECT_FALSE(partition("low").at("may_use").get<bool>()) << "closed again, since main is open";
  EXPECT_EQ(main.at("problems").size(), 0U) << main.dump(1);
}

TEST_F(SlurmAdmin, EachLimitIsRefusedAtSubmitWithItsName) {
  start();
  must({"add", "main", "--max-nodes", "2", "--max-ranks", "3", "--max-time", "1h", "--max-queued-jobs-per-user", "1",
        "--max-running-jobs-per-user", "1"});
  must({"add", "high", "--users", "nobody-here"});
  const auto main = in_partition("main");
  struct Case {
    std::string job, says;
    int exit;
  };
  for (const auto& [job, says, exit] : {
           Case{resources("nodes = 3") + main, "max_nodes is 2, the job wants 3; use at most 2 nodes", 5},
           Case{resources("nodes = 2\nranks_per_node = 2") + main, "max_ranks is 3, the job wants 4", 5},
           Case{resources("time_limit = \"2h\"") + main, "max_time is 1h, the job wants 2h", 5},
           Case{in_partition("high"), "its users do not include", 5},
           Case{in_partition("low"), "admins have not opened it", 5},
           Case{in_partition("mian"), "did you mean \"main\"", 2},
       }) {
    const auto done = submit(job);
    EXPECT_EQ(done.exit, exit) << job << done.err;
    EXPECT_THAT(done.err, HasSubstr(says));
    EXPECT_EQ(done.out, "");
  }
  const auto first = in_slurm("sleep 600", main);
  muster().until_state(first, "running");
  const auto second = muster().submit(shell_job("true", main));
  const auto third = submit(main);
  EXPECT_EQ(third.exit, 5);
  EXPECT_THAT(third.err, HasSubstr("max_queued_jobs_per_user is 1"));
  EXPECT_THAT(muster().cli({"why", second}).out, HasSubstr("max_running_jobs_per_user"));
  EXPECT_EQ(muster().cli({"limit", first, "3h"}).exit, 5) << "nor later";
  cancel(first);
  muster().until_state(second, "succeeded");
}

TEST_F(SlurmAdmin, OfALimitedSweepAsManyRunAtOnceAsItAndItsPartitionAllow) {
  start();
  must({"add", "main", "--max-running-jobs-per-user", "3"});
  const auto file = muster().folder() / "sweep.toml";
  const auto meeting = muster().folder() / "meeting";
  std::filesystem::create_directory(meeting);
  write_file(file, shell_job("cd " + meeting.string() + "; touch here.$STEP; until [ -e go.$STEP ]; do sleep 0.1; done",
                             in_partition("main", "[env]\nSTEP = \"0\"\n")));
  const auto done = muster().cli({"submit", file, "--sweep", "env.STEP=0..4", "--parallel", "2"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const auto sweep = done.out.substr(0, done.out.find('\n'));
  const auto count = [&](const std::string& state) {
    const auto jobs = muster().json({"list", "--sweep", sweep});
    return std::ranges::count_if(jobs, [&](const Json& job) { return job.at("state") == state; });
  };
  const auto here = [&](int step) { return std::filesystem::exists(meeting / ("here." + std::to_string(step))); };
  std::set<int> left{0, 1, 2, 3, 4};
  for (std::ptrdiff_t ended = 0; ended < 5; ++ended) {
    const auto at_once = std::min<std::ptrdiff_t>(2, std::ssize(left));
    EXPECT_TRUE(eventually([&] { return std::ranges::count_if(left, here) == at_once; }, 30s))
        << ended << " have ended";
    const auto one = std::ranges::find_if(left, here);
    ASSERT_NE(one, left.end());
    write_file(meeting / ("go." + std::to_string(*one)), "");
    left.erase(one);
    ASSERT_TRUE(eventually([&] { return count("succeeded") == ended + 1; }, 30s));
    EXPECT_LE(std::ranges::count_if(left, here), 2);
  }
}

TEST_F(SlurmAdmin, AGroupsPartitionIsItsMembersAlone) {
  start();
  must({"add", "high", "--groups", "nogroup"});
  const auto refused = submit(in_partition("high"));
  EXPECT_EQ(refused.exit, 5);
  EXPECT_THAT(refused.err, HasSubstr("its groups do not include"));
  auto group = run({"/usr/bin/id", "-gn"}, {}, 20s).out;
  while (group.ends_with('\n')) group.pop_back();
  must({"set", "high", "--groups", "nogroup," + group});
  const auto job = in_slurm("true", in_partition("high"));
  EXPECT_EQ(muster().until_state(job, "succeeded").at("attempts").size(), 1U);
}

TEST_F(SlurmAdmin, OfSeveralPartitionsSlurmChoosesWhereNoneHasLimitsOfItsOwn) {
  start();
  const auto job = in_slurm("true", in_partition("main,high"));
  EXPECT_EQ(muster().until_state(job, "succeeded").at("attempts").size(), 1U);
  must({"add", "main"});
  EXPECT_THAT(submit(in_partition("main,high")).err, HasSubstr("want one partition"));
}

TEST_F(SlurmAdmin, DefaultsAndSetupReachSlurm) {
  start();
  must({"add", "main", "--default", "true", "--default-time", "90m", "--default-account", "lab", "--default-gres",
        "gpu:1", "--requeue-max-failed", "0", "--setup", "export FROM_ADMIN=yes"});
  const auto job = in_slurm("echo \"setup $FROM_ADMIN\" > seen; sleep 600", "");
  muster().until_state(job, "running");
  const auto id = slurm_job(job);
  EXPECT_EQ(slurm_cluster::field(slurm(), id, "Partition"), "main");
  EXPECT_EQ(slurm_cluster::field(slurm(), id, "TimeLimit"), "1:30:00");
  EXPECT_EQ(slurm_cluster::field(slurm(), id, "Account"), "lab");
  EXPECT_THAT(slurm_cluster::field(slurm(), id, "tres-per-node"), HasSubstr("gpu:1"));
  const auto spec = muster().show(job).at("spec");
  EXPECT_EQ(spec.at("requeue").at("max_failed"), 0) << "the partition's budget";
  EXPECT_EQ(spec.at("requeue").at("max_rank_hung"), 2) << "muster's own";
  const auto seen = muster().folder() / "seen";  // the job file's folder
  EXPECT_TRUE(eventually([&] { return read_file(seen) == "setup yes\n"; }, 20s)) << read_file(seen);
  cancel(job);
}

TEST_F(SlurmAdmin, AFailedHealthCheckKeepsRanksOffAndNamesTheNode) {
  start();
  must({"add", "main", "--health-check", "echo looking; test \"$SLURMD_NODENAME\" != node1"});
  const auto job = muster().submit(
      shell_job("touch ran-$MUSTER_ATTEMPT", resources("nodes = 2") + in_partition("main", "exclude = \"node4\"\n")));
  const auto after = muster().until_state(job, "succeeded", 60s);
  ASSERT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
  const auto& first = after.at("attempts")[0];
  EXPECT_EQ(first.at("cause"), "node_failed");
  EXPECT_THAT(first.at("reason").get<std::string>(), HasSubstr("node1 is unfit: its health check failed"));
  EXPECT_FALSE(std::filesystem::exists(muster().folder() / "ran-1"));
  EXPECT_TRUE(std::filesystem::exists(muster().folder() / "ran-2"));
  const auto nodes = muster().json({"nodes"});
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(nodes[0].at("name"), "node1");
  EXPECT_FALSE(nodes[0].at("excluded_until").is_null());
  EXPECT_EQ(std::to_string(nodes[0].at("lost_by_job").get<int>()), job);
  EXPECT_TRUE(nodes[1].at("lost_at").is_null());
  EXPECT_THAT(
      muster().cli({"nodes"}).out,
      HasSubstr(" UTC: node node1 is unfit: its health check failed with exit code 1 (job " + job + " attempt 1)"));
}

// Whose check is wrong keeps nobody else off a node.
TEST_F(SlurmAdmin, AJobsOwnHealthCheckKeepsThatJobAloneOffANode) {
  start();
  must({"add", "main", "--health-check", "true"});
  const auto job = muster().submit(shell_job(
      "true", "max_node_failed = 1\n" + in_partition("main", "nodelist = \"node1\"\nhealth_check = \"exit 7\"\n")));
  muster().until(job, [](const Json& view) {
    return !view.at("attempts").empty() && view.at("attempts")[0].at("cause") == "node_failed";
  });
  const auto node = muster().json({"nodes"})[0];
  EXPECT_TRUE(node.at("excluded_until").is_null()) << node.dump(1);
  EXPECT_THAT(muster().cli({"nodes"}).out,
              HasSubstr("avoided by job " + job +
                        " only: node node1 is unfit: its health check failed (of this job alone) "
                        "with exit code 7"));
  const auto other = muster().submit(shell_job("true", in_partition("main", "nodelist = \"node1\"\n")));
  EXPECT_EQ(muster().until_state(other, "succeeded").at("attempts").size(), 1U);
  cancel(job);
}

TEST_F(SlurmAdmin, PoliciesAndTheirHistorySurviveARestart) {
  start();
  must({"add", "main", "--max-nodes", "2"});
  must({"set", "main", "--max-nodes", "3", "--users", "root,ann"});
  const auto before = muster().json({"admin", "audit"});
  muster().kill_daemon();
  muster().start_daemon();
  EXPECT_EQ(muster().json({"admin", "audit"}), before);
  ASSERT_EQ(before.size(), 2U);
  EXPECT_EQ(before[0].at("action"), "set");
  for (const auto& line : before) {
    EXPECT_EQ(line.at("user"), own_name());
    EXPECT_THAT(line.at("at").get<std::string>(),
                MatchesRegex("20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?Z"));
  }
  EXPECT_EQ(before[0].at("before"), R"({"max_nodes":2})");
  EXPECT_EQ(before[0].at("after"), R"({"users":["root","ann"],"max_nodes":3})");
  EXPECT_THAT(submit(resources("nodes = 4") + in_partition("main")).err, HasSubstr("max_nodes is 3"));
}

TEST_F(SlurmAdmin, WhatSlurmDoesNotHaveIsRefusedAndWhatDoesNotFitIsTold) {
  start();
  const auto unknown = admin({"add", "mian"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("did you mean \"main\""), HasSubstr("high, low, main")));
  EXPECT_EQ(admin({"set", "main", "--max-nodes", "2"}).exit, 3) << "it has no policy yet";
  EXPECT_EQ(admin({"add", "main", "--max-nodes", "many"}).exit, 2);
  const auto misfit = admin({"add", "main", "--preemptible", "true", "--max-nodes", "99"});
  EXPECT_EQ(misfit.exit, 0);
  EXPECT_THAT(misfit.err, AllOf(HasSubstr("PreemptMode=OFF"), HasSubstr("Slurm has 4 nodes there")));
  EXPECT_EQ(admin({"add", "main"}).exit, 2) << "it is there already";
  EXPECT_THAT(admin({"list"}).err, HasSubstr("PreemptMode=OFF"));
  EXPECT_THAT(muster().cli({"doctor", "--json"}).out, HasSubstr("PreemptMode=OFF"));
  EXPECT_EQ(admin({"set", "main", "--preemptible", "none", "--max-nodes", "4"}).err, "");
}

TEST_F(SlurmAdmin, WithSlurmDownAPolicyIsKeptAndFlagged) {
  start();
  slurm().stop_ctld();
  const auto kept = admin({"add", "newer", "--max-nodes", "2"});
  slurm().start_ctld();
  EXPECT_EQ(kept.exit, 0) << kept.err;
  EXPECT_TRUE(
      eventually([&] { return admin({"list"}).err.find("Slurm has no such partition") != std::string::npos; }, 30s));
  EXPECT_EQ(admin({"remove", "newer"}).exit, 0);
}

TEST_F(SlurmAdmin, AFileIsReloadedLiveAndABrokenOneChangesNothing) {
  TemporaryFolder folder;
  const auto file = folder.path() / "partitions.toml";
  const auto sample = read_file(std::filesystem::path(::test::source_folder()) / "deploy/partitions.toml");
  ASSERT_NE(sample, "");
  write_file(file, sample);
  start({"--partitions", file});
  EXPECT_EQ(partition("main").at("policy").at("max_nodes"), 4);
  EXPECT_TRUE(partition("main").at("policy").at("is_default").get<bool>());
  EXPECT_EQ(partition("low").at("problems").size(), 0U) << "it is preemptible in Slurm too";

  write_file(file, "[partition.main]\nmax_nodes = 1\n");
  EXPECT_TRUE(eventually([&] { return partition("main").at("policy").at("max_nodes") == 1; }, kReload));
  EXPECT_THAT(submit(resources("nodes = 2") + in_partition("main")).err, HasSubstr("max_nodes is 1"));
  const auto audit = muster().json({"admin", "audit"});
  EXPECT_EQ(audit[0].at("user"), "file");
  EXPECT_EQ(audit.size(), 6U) << "three added, one changed, two removed";

  write_file(file, "[partition.main]\nmax_nodes = 7\nusres = [\"ann\"]\n");
  EXPECT_TRUE(eventually(
      [&] {
        return muster().cli({"doctor", "--json"}).out.find("3:1: usres: unknown key") != std::string::npos;
      },
      kReload));
  EXPECT_EQ(partition("main").at("policy").at("max_nodes"), 1);
  const auto by_command = admin({"set", "main", "--max-nodes", "2"});
  EXPECT_EQ(by_command.exit, 2);
  EXPECT_THAT(by_command.err, HasSubstr("edit " + file.string()));

  muster().stop_daemon();
  muster().start_daemon();
  EXPECT_EQ(partition("main").at("policy").at("max_nodes"), 1) << "the last good one, though the file is broken";
}

TEST_F(SlurmAdmin, MusterdThatMustHaveSlurmWantsAConfigurationThatSlurmTakes) {
  TemporaryFolder folder;
  write_file(folder.path() / "slurm.conf", "nonsense nonsense\n");
  World::Options options;
  options.daemon_flags = {"--slurm", "yes"};
  options.daemon_environment = slurm().env();
  options.daemon_environment["SLURM_CONF"] = folder.path() / "slurm.conf";
  World broken(options);
  EXPECT_EQ(broken.launch_daemon().wait(60s), 2);
  EXPECT_THAT(broken.daemon_log(), AllOf(HasSubstr("musterd: --slurm yes: "), HasSubstr("line 1")));
  start({"--slurm", "yes"});
  EXPECT_THAT(muster().cli({"nodes"}).out, HasSubstr("node1"));
  const auto file = muster().folder() / "job.toml";
  write_file(file, shell_job("true"));
  EXPECT_THAT(muster().cli({"submit", "--print-script", "--executor", "local", file}).err,
              HasSubstr("executor \"local\": its ranks are started as processes of the controller's machine, without a "
                        "script of Slurm's; use \"slurm\" to see one"));
}

}  // namespace
}  // namespace test
