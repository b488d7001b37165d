// Goal: a cluster leaves nothing behind, however it ends, and whoever ends.
// Method: a cluster whose job has a process that left its session; the end; then /proc is searched for the cluster's
// folder.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "tests/places.h"
#include "tests/slurm_cluster/world.h"

namespace slurm_cluster {
namespace {

using testing::HasSubstr;

constexpr auto kGoneLimit = 20s;
constexpr uid_t kNobody = 65534;

/// A job that tries to be left behind: one process in its task, one in a session of its own that ignores signals.
void start_clinging_job(const Cluster& cluster) {
  submit(cluster, {},
         "setsid bash -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' &\ntouch started\nsrun sleep 600");
  ASSERT_TRUE(test::eventually([&] { return std::filesystem::exists(cluster.folder() / "started"); }, 20s));
}

/// Tells whether all processes of the cluster ended; says which did not.
testing::AssertionResult gone(const std::filesystem::path& folder) {
  if (!test::eventually([&] { return processes_of(folder).empty(); }, kGoneLimit)) {
    auto failure = testing::AssertionFailure() << "left behind:";
    for (const auto pid : processes_of(folder)) {
      failure << " " << pid << " " << test::read_file("/proc/" + std::to_string(pid) + "/comm");
    }
    return failure;
  }
  return testing::AssertionSuccess();
}

/// Runs `body` in a child process, which then waits to be killed; returns its pid and what it wrote.
struct Child {
  pid_t pid = -1;
  std::string said;
};
Child fork_test(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    std::string said;
    try {
      said = body();
    } catch (const std::exception& e) {
      said = std::string("error: ") + e.what();
    }
    if (write(ends[1], said.data(), said.size()) < 0) _exit(1);
    close(ends[1]);
    for (;;) pause();
  }
  close(ends[1]);
  Child child{pid, ""};
  char part[4096];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof part)) > 0;)
    child.said.append(part, static_cast<std::size_t>(got));
  close(ends[0]);
  return child;
}

void kill_and_reap(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST(SlurmCluster, LeavesNothingBehindWhenItGoes) {
  std::filesystem::path folder;
  {
    const Cluster cluster({.nodes = 2});
    folder = cluster.folder();
    start_clinging_job(cluster);
    EXPECT_GE(processes_of(folder).size(), 8U);
  }
  EXPECT_TRUE(processes_of(folder).empty());
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(SlurmCluster, LeavesNothingBehindWhenTheTestIsKilled) {
  const auto child = fork_test([] {
    const auto* cluster = new Cluster({.nodes = 2});  // its destructor never runs
    start_clinging_job(*cluster);
    return cluster->folder().string();
  });
  ASSERT_GE(processes_of(child.said).size(), 8U) << child.said;
  kill_and_reap(child.pid);
  EXPECT_TRUE(gone(child.said));
  EXPECT_TRUE(test::eventually([&] { return !std::filesystem::exists(child.said); }, kGoneLimit));
}

TEST(SlurmCluster, LeavesNothingBehindWhenTheTestIsKilledWithoutRoot) {
  if (getuid() != 0) GTEST_SKIP() << "the test above was without root";
  const auto child = fork_test([]() -> std::string {
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) return "error: no other user";
    prctl(PR_SET_DUMPABLE, 1);
    if (access((::test::source_folder() + "/tools/cluster/__main__.py").c_str(), R_OK) != 0) return "unreadable";
    const auto* cluster = new Cluster({.nodes = 2});
    start_clinging_job(*cluster);
    return cluster->has_namespaces() ? "error: namespaces without root" : cluster->folder().string();
  });
  if (child.said == "unreadable") {
    kill_and_reap(child.pid);
    GTEST_SKIP() << "the checkout is readable for root alone";
  }
  ASSERT_THAT(child.said, testing::Not(HasSubstr("error")));
  ASSERT_GE(processes_of(child.said).size(), 6U);
  kill_and_reap(child.pid);
  EXPECT_TRUE(gone(child.said));
  EXPECT_TRUE(test::eventually([&] { return !std::filesystem::exists(child.said); }, kGoneLimit));
}

TEST(SlurmCluster, LeavesNothingBehindWhenItsOwnProcessesAreKilled) {
  for (const bool keeper : {true, false}) {
    const Cluster cluster({.nodes = 2});
    start_clinging_job(cluster);
    ASSERT_EQ(kill(keeper ? cluster.keeper() : cluster.guard(), SIGKILL), 0);
    EXPECT_TRUE(gone(cluster.folder())) << (keeper ? "keeper" : "guard");
  }
}

TEST(SlurmCluster, ItsNetworkGoesWithIt) {
  if (getuid() != 0) GTEST_SKIP() << "a network of its own needs root";
  const auto links = [] { return test::run({"/usr/bin/env", "ip", "-br", "address"}, {}, 20s).out; };
  std::string address;
  {
    const Cluster cluster({.nodes = 1, .separate_network = true});
    address = cluster.host_address() + "/";
    EXPECT_THAT(links(), HasSubstr(address));
  }
  EXPECT_TRUE(test::eventually([&] { return links().find(address) == std::string::npos; }, kGoneLimit));
}

// The kernel keeps empty control groups for ever; after a SIGKILL the next cluster that has some removes them.
TEST(SlurmCluster, ItsControlGroupsGoWithItOrWithTheNext) {
  const std::filesystem::path mounted = "/sys/fs/cgroup/memory";
  if (const auto why = no_memory_limits(); !why.empty()) GTEST_SKIP() << why;
  const auto groups_of = [&](const Cluster& cluster) {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(mounted)) {
      const auto name = entry.path().filename().string();
      if (name.starts_with("muster-cluster-" + std::to_string(cluster.keeper()) + "-")) found.push_back(entry.path());
    }
    return found;
  };
  std::vector<std::filesystem::path> groups;
  {
    const Cluster cluster({.nodes = 1, .memory_limits = true});
    EXPECT_EQ(cluster.run({"srun", "--mem=100M", "true"}).exit, 0);
    groups = groups_of(cluster);
    ASSERT_EQ(groups.size(), 1U);
    EXPECT_TRUE(std::filesystem::exists(groups[0] / "slurm_node1"));
  }
  EXPECT_FALSE(std::filesystem::exists(groups[0]));
  {
    const Cluster killed({.nodes = 1, .memory_limits = true});
    kill(killed.keeper(), SIGKILL);
    EXPECT_TRUE(gone(killed.folder()));
    groups = groups_of(killed);
    ASSERT_EQ(groups.size(), 1U);
  }
  const Cluster next({.nodes = 1, .memory_limits = true});
  EXPECT_FALSE(std::filesystem::exists(groups[0]));
  EXPECT_EQ(groups_of(next).size(), 1U);
}

// --- ./dev cluster, for people
// -------------------------------------------------------------------------------------------------

class People : public testing::Test {
 protected:
  ~People() override { cluster({"stop"}); }
  test::Finished cluster(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"/usr/bin/env", "python3", "-B", ::test::source_folder() + "/tools/cluster"});
    arguments.insert(arguments.end(), {"--folder", folder()});
    return test::run(arguments, {}, 60s);
  }
  std::string folder() const { return (temp_.path() / "c").string(); }
  test::TemporaryFolder temp_;
};
using SlurmClusterCommand = People;

TEST_F(SlurmClusterCommand, StartsOnceTellsHowToUseItAndStops) {
  EXPECT_THAT(cluster({"status"}).err, HasSubstr("no cluster runs"));
  const auto started = cluster({"start", "--nodes", "2"});
  ASSERT_EQ(started.exit, 0) << started.err;
  EXPECT_THAT(started.out, HasSubstr("eval \"$(./dev cluster env --folder " + folder() + ")\""));
  EXPECT_THAT(started.out, HasSubstr("logs         " + folder() + "/log"));
  const auto again = cluster({"start"});
  EXPECT_EQ(again.exit, 1);
  EXPECT_THAT(again.err, HasSubstr("a cluster runs in " + folder() + " already"));
  EXPECT_THAT(cluster({"status"}).out, HasSubstr("munged, node1, node2, slurmctld"));
  EXPECT_THAT(cluster({"env"}).out, HasSubstr("export SLURM_CONF=" + folder() + "/slurm.conf\n"));
  EXPECT_EQ(cluster({"stop"}).exit, 0);
  EXPECT_TRUE(processes_of(folder()).empty());
  EXPECT_THAT(cluster({"stop"}).out, HasSubstr("no cluster runs"));
}

TEST_F(SlurmClusterCommand, StopsAndStartsAfterACrash) {
  ASSERT_EQ(cluster({"start", "--nodes", "1"}).exit, 0);
  test::write_file(folder() + "/state/of the first", "");
  const auto programs = processes_of(folder(), "python3");
  ASSERT_FALSE(programs.empty());
  // The keeper, which is the older one; without root, both at once would leave the daemons behind.
  kill(programs.front(), SIGKILL);
  EXPECT_TRUE(gone(folder()));
  EXPECT_EQ(cluster({"stop"}).exit, 0);
  ASSERT_EQ(cluster({"start", "--nodes", "1"}).exit, 0);
  EXPECT_FALSE(std::filesystem::exists(folder() + "/state/of the first"));
}

TEST_F(SlurmClusterCommand, TouchesNoFolderThatIsNotAClusters) {
  std::filesystem::create_directory(folder());
  test::write_file(folder() + "/thesis.txt", "dear");
  const auto started = cluster({"start"});
  EXPECT_EQ(started.exit, 1);
  EXPECT_THAT(started.err, HasSubstr("holds other things than a cluster"));
  EXPECT_EQ(test::read_file(folder() + "/thesis.txt"), "dear");
}

}  // namespace
}  // namespace slurm_cluster
