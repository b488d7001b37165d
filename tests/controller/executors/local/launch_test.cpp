#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "agent/protocol/attempt_folder.h"
#include "controller/executors/local/start.h"
#include "tests/controller/executors/local/world.h"

// Goal: ranks start exactly as asked, or a clear word says why not.
// Method: real processes that write down what they see.
namespace test {

class Launch : public World {
 protected:
  void run(const executors::LaunchRequest& request) {
    must_launch(request);
    for (core::RankNumber rank = 0; rank < request.ranks_per_node; ++rank) ASSERT_TRUE(facts_.exit_of(rank));
  }
  void run(const std::string& script, std::size_t ranks = 1) { run(request_of(1, script, ranks)); }
  std::map<std::string, std::string> environment_of(int rank) {
    std::istringstream text(read_file(root_ / ("work/env." + std::to_string(rank))));
    std::map<std::string, std::string> result;
    for (std::string entry; std::getline(text, entry, '\0');) {
      result[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    }
    return result;
  }
  core::AttemptLaunchFailed must_fail(const executors::LaunchRequest& request) {
    const auto answer = launch(request);
    const auto* failed = std::get_if<core::AttemptLaunchFailed>(&answer);
    EXPECT_TRUE(failed) << "it was launched";
    return failed ? *failed : core::AttemptLaunchFailed{};
  }
};

constexpr const char* kWriteEnvironment = "exec env -0 > env.$RANK";

TEST_F(Launch, RanksSeeTheirPlaceAmongAll) {
  run(kWriteEnvironment, 3);
  std::set<std::string> ports;
  for (int rank = 0; rank < 3; ++rank) {
    auto env = environment_of(rank);
    EXPECT_EQ(env["RANK"], std::to_string(rank));
    EXPECT_EQ(env["LOCAL_RANK"], std::to_string(rank));
    EXPECT_EQ(env["NODE_RANK"], "0");
    EXPECT_EQ(env["WORLD_SIZE"], "3");
    EXPECT_EQ(env["LOCAL_WORLD_SIZE"], "3");
    EXPECT_EQ(env["MASTER_ADDR"], "127.0.0.1");
    EXPECT_FALSE(env.contains("CUDA_VISIBLE_DEVICES"));
    ports.insert(env["MASTER_PORT"]);
  }
  ASSERT_EQ(ports.size(), 1u);
  const auto port = std::stoi(*ports.begin());
  const auto ephemeral = executors::local::PortPicker::ephemeral_range();
  EXPECT_TRUE(port < ephemeral.first || port > ephemeral.second) << port;
}

TEST_F(Launch, NothingOfTheControllersOwnEnvironmentReachesARank) {
  ::setenv("MUSTER_TEST_SECRET", "the daemon's", 1);
  ::setenv("SECRET_OF_THE_DAEMON", "the daemon's", 1);
  auto request = request_of(1, kWriteEnvironment, 1);
  request.base_env = {{"PATH", "/usr/bin:/bin"}, {"HOME", "/home/of-the-user"}};
  run(request);
  ::unsetenv("MUSTER_TEST_SECRET");
  ::unsetenv("SECRET_OF_THE_DAEMON");
  std::set<std::string> names;
  for (const auto& [name, value] : environment_of(0)) names.insert(name);
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         "HOME", "PATH", "ROOT", "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                         "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR",
                         "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT", "MUSTER_LOCAL_RANK", "MUSTER_NODES",
                         "MUSTER_NODELIST", "MUSTER_REPORT", "MUSTER_STOP", "TORCHELASTIC_ERROR_FILE", "PWD",
                         "MUSTER_CONTROLLER", "MUSTER_RANK_TOKEN", "MUSTER_JOB_ID", "MUSTER_ATTEMPT"))
      << "PWD is the shell's own, and the last four are the request's";
}

TEST_F(Launch, WhatTheUserSetIsNeverOverwritten) {
  auto request = request_of(1, kWriteEnvironment, 1);
  request.wish.gpus_of_rank = 1;
  request.env.insert({{"MASTER_PORT", "1234"}, {"WORLD_SIZE", "77"}, {"CUDA_VISIBLE_DEVICES", ""}, {"PATH", "/bin"}});
  run(request);
  auto env = environment_of(0);
  EXPECT_EQ(env["MASTER_PORT"], "1234");
  EXPECT_EQ(env["WORLD_SIZE"], "77");
  EXPECT_EQ(env.at("CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(env["PATH"], "/bin");
}

// CUDA's own order is by speed, and so another one where the GPUs of a machine differ.
TEST_F(Launch, ANumberOfAGpuMeansThatOfTheDriver) {
  auto request = request_of(1, kWriteEnvironment, 1);
  request.wish.gpus_of_rank = 1;
  request.base_env["CUDA_DEVICE_ORDER"] = "FASTEST_FIRST";
  request.share = core::MachineShare{{"1"}, 0};
  run(request);
  auto env = environment_of(0);
  EXPECT_EQ(env["CUDA_VISIBLE_DEVICES"], "1");
  EXPECT_EQ(env["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
}

TEST_F(Launch, HostileNamesAndValuesArriveUnchanged) {
  const std::string nasty = "a b'c\"d\ne%f$HOME`id`\\ \t\x01 \xc3\xa9";
  auto request = request_of(1, kWriteEnvironment, 1);
  request.job_name = "../" + nasty;
  request.env["NASTY"] = nasty;
  request.env["EMPTY"] = "";
  request.argv = {"/bin/sh", "-c", "printf %s \"$1\" > argument; exec env -0 > env.$RANK", "sh", nasty};
  request.working_folder = (root_ / "work" / ("in " + nasty)).string();
  std::filesystem::create_directories(request.working_folder);
  request.log_folder = (root_ / ("logs " + nasty)).string();
  run(request);
  const std::filesystem::path working = request.working_folder;
  EXPECT_EQ(read_file(working / "argument"), nasty);
  EXPECT_NE(read_file(working / "env.0").find("NASTY=" + nasty + std::string(1, '\0')), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(request.log_folder + "/rank-0.log"));
}

TEST_F(Launch, EachRankHasItsOwnLogOfBothOutputs) {
  run("echo out $RANK; echo err $RANK >&2; read line || echo no input", 2);
  EXPECT_EQ(read_file(log(1, 0)), "out 0\nerr 0\nno input\n");
  EXPECT_EQ(read_file(log(1, 1)), "out 1\nerr 1\nno input\n");
}

TEST_F(Launch, ALogIsAppendedTo) {
  std::filesystem::create_directories(log(1, 0).parent_path());
  write_file(log(1, 0), "before\n");
  run("echo after");
  EXPECT_EQ(read_file(log(1, 0)), "before\nafter\n");
}

TEST_F(Launch, ALineOfTenMegabytesIsKept) {
  run("head -c 10000000 /dev/zero | tr '\\0' x; echo end");
  const auto text = read_file(log(1, 0));
  EXPECT_EQ(text.size(), 10'000'004u);
  EXPECT_TRUE(text.ends_with("xend\n"));
}

TEST_F(Launch, RanksInheritNeitherDescriptorsNorSignalSettings) {
  const int leaky = ::open("/dev/null", O_RDONLY);  // no O_CLOEXEC
  ::signal(SIGUSR2, SIG_IGN);
  run("ls /proc/self/fd | tr '\\n' ' ' > fds; for set in SigBlk SigIgn; do grep $set /proc/self/status > $set; done");
  ::signal(SIGUSR2, SIG_DFL);
  ::close(leaky);
  EXPECT_EQ(read_file(root_ / "work/fds"), "0 1 2 3 ") << "3 is ls's own";
  for (const auto* set : {"SigBlk", "SigIgn"}) {
    const auto bits = std::stoull(read_file(root_ / "work" / set).substr(7), nullptr, 16);
    EXPECT_EQ(bits & 0x7fffffff, 0u) << set << ": " << std::hex << bits;  // 32 and 33 are glibc's own
  }
}

TEST_F(Launch, ASupervisorKeepsNothingOfTheControllerOpen) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);                           // as a library's socket may be: no O_CLOEXEC
  const int inherited = ::fcntl(ends[1], F_DUPFD, 20);  // a number that an agent does not use itself
  ::close(ends[1]);
  must_launch(1, "exec sleep 1000");
  ::close(inherited);
  pollfd end{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 0), 1);
  EXPECT_EQ(end.revents, POLLHUP) << "another process still holds the other end";
  ::close(ends[0]);
}

TEST_F(Launch, EachRankLeadsAProcessGroupAndKnowsItsPid) {
  const auto launched = must_launch(1, "cut -d' ' -f5 /proc/$$/stat > group.$RANK; echo $$ > pid.$RANK", 2);
  for (core::RankNumber rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(facts_.exit_of(rank));
    const auto pid = std::to_string(launched.pids.at(rank)) + "\n";
    EXPECT_EQ(read_file(root_ / ("work/pid." + std::to_string(rank))), pid);
    EXPECT_EQ(read_file(root_ / ("work/group." + std::to_string(rank))), pid);
  }
  EXPECT_EQ(launched.handle, folder(1).string());
  EXPECT_FALSE(launched.node.empty());
}

TEST_F(Launch, TwiceIsOneStart) {
  const auto first = must_launch(1, "echo $RANK >> starts; exec sleep 1000", 2);
  const auto second = must_launch(1, "echo $RANK >> starts; exec sleep 1000", 2);
  EXPECT_EQ(first, second);
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/starts") == 2; }));
  stop({1, 1}, {0ms});
  ASSERT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
  EXPECT_EQ(count_lines(root_ / "work/starts"), 2u);
}

TEST_F(Launch, ByManyThreadsAtOnceIsOneStart) {
  std::vector<executors::LaunchAnswer> answers(8);
  {
    std::vector<std::jthread> threads;
    for (auto& answer : answers) {
      threads.emplace_back([&] { answer = launch(1, "echo $RANK >> starts; exec sleep 1000", 2); });
    }
  }
  for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]);
  EXPECT_TRUE(std::holds_alternative<core::AttemptLaunched>(answers[0]));
  EXPECT_TRUE(eventually([&] { return count_lines(root_ / "work/starts") == 2; }));
  stop({1, 1}, {0ms});
  ASSERT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
  EXPECT_EQ(count_lines(root_ / "work/starts"), 2u);
}

// A cancel may come while nobody knows whether an earlier controller has started the attempt.
TEST_F(Launch, WithdrawingTellsWhetherTheAttemptIsThere) {
  const auto request = request_of(1, "sleep 60", 1);
  EXPECT_EQ(withdraw(request), std::nullopt) << "it was never launched";
  const auto launched = must_launch(request);
  restart_controller();
  const auto answer = withdraw(request);
  ASSERT_TRUE(answer && std::holds_alternative<core::AttemptLaunched>(*answer));
  EXPECT_EQ(std::get<core::AttemptLaunched>(*answer).pids, launched.pids);
  stop(request.key, {});
}

TEST_F(Launch, AttemptsOnOneMachineGetDifferentPorts) {
  std::set<int> ports;
  for (core::JobId job = 1; job <= 3; ++job) {
    must_launch(job, "exec sleep 1000");
    const auto fd = ::open(folder(job).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ports.insert(agent::protocol::read_launch_in(fd)->local->master_port);
    ::close(fd);
  }
  EXPECT_EQ(ports.size(), 3u);
}

TEST_F(Launch, WorksInAFolderWhosePathIsLongerThanASocketsMayBe) {
  use_root(top_ / std::string(100, 'a') / std::string(100, 'b'));
  must_launch(1, "trap 'exit 99' TERM; echo ready > ready; while :; do sleep 0.05; done");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(root_ / "work/ready"); }));
  stop({1, 1}, {5s});
  const auto exited = facts_.exit_of(0);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->exit.code, 99);
}

TEST_F(Launch, AMissingProgramIsNamedAndNotTriedAgain) {
  auto request = request_of(1, "", 2);
  request.argv = {"no-such-trainer"};
  const auto failed = must_fail(request);
  EXPECT_THAT(failed.reason, testing::StartsWith("program no-such-trainer not found in PATH ("));
  EXPECT_FALSE(failed.retryable);
  EXPECT_EQ(failed.attempt, 1u);
}

TEST_F(Launch, AMissingWorkingFolderIsNamedAndNotTriedAgain) {
  auto request = request_of(1, "", 1);
  request.working_folder = (root_ / "nowhere").string();
  const auto failed = must_fail(request);
  EXPECT_EQ(failed.reason, "working folder " + request.working_folder +
                               ": No such file or directory; create it, or correct the job file");
  EXPECT_FALSE(failed.retryable);
}

TEST_F(Launch, AScriptWithoutItsInterpreterIsNamedAndNotTriedAgain) {
  const auto script = root_ / "work/train";
  write_file(script, "#!/no/such/interpreter\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  auto request = request_of(1, "", 2);
  request.argv = {"./train"};
  const auto failed = must_fail(request);
  EXPECT_EQ(failed.reason, "cannot execute ./train: the interpreter named in its first line is missing");
  EXPECT_FALSE(failed.retryable);
  EXPECT_EQ(must_fail(request), failed) << "the same answer when asked again";
  EXPECT_TRUE(eventually([&] { return status(1).ended; }));
  EXPECT_TRUE(facts_.all().empty());
}

TEST_F(Launch, AFullDiskIsWaitedFor) {
  std::filesystem::create_directories(folder(1));
  std::filesystem::create_symlink("/dev/full", folder(1) / "launch.json.tmp");
  const auto answer = launch(request_of(1, "echo ran >> starts", 1));
  const auto* later = std::get_if<executors::LaunchLater>(&answer);
  ASSERT_TRUE(later);
  EXPECT_EQ(later->why, "cannot write launch.json.tmp: No space left on device (in " + folder(1).string() + ")");
  EXPECT_EQ(later->remedy, "Make room there: it starts by itself.");

  std::filesystem::remove(folder(1) / "launch.json.tmp");
  run("echo ran >> starts");
  EXPECT_EQ(count_lines(root_ / "work/starts"), 1u);
}

TEST_F(Launch, ADescriptorIsWaitedForAndTheRemedyIsAnotherThanForADisk) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto answer = launch(request_of(1, "echo ran >> starts", 1));
  ::setrlimit(RLIMIT_NOFILE, &before);
  const auto* later = std::get_if<executors::LaunchLater>(&answer);
  ASSERT_TRUE(later);
  EXPECT_THAT(later->why, testing::HasSubstr("Too many open files"));
  EXPECT_THAT(later->remedy, testing::StartsWith("Raise musterd's limit of open files"));
  run("echo ran >> starts");
  EXPECT_EQ(count_lines(root_ / "work/starts"), 1u);
}

// Method: room for launch.json alone, on a disk whose files take whole pages.
TEST_F(Launch, ADiskWithoutRoomForTheSupervisorsFactsIsWaitedFor) {
  std::filesystem::create_directories(folder(1));
  if (::mount("tmpfs", folder(1).c_str(), "tmpfs", 0, "size=8k") != 0) GTEST_SKIP() << "mounting a tmpfs needs root";
  const auto answer = launch(request_of(1, "echo ran >> starts", 1));
  const auto* later = std::get_if<executors::LaunchLater>(&answer);
  EXPECT_THAT(later ? later->why : "it was launched, or failed",
              testing::HasSubstr("status.jsonl: No space left on device"));
  ASSERT_EQ(::mount("tmpfs", folder(1).c_str(), "tmpfs", MS_REMOUNT, "size=1m"), 0);
  run("echo ran >> starts");
  EXPECT_EQ(count_lines(root_ / "work/starts"), 1u);
  ::umount2(folder(1).c_str(), MNT_DETACH);
}

TEST_F(Launch, AMissingSupervisorIsNamed) {
  restart_controller("/no/such/muster-agent");
  const auto failed = must_fail(request_of(1, "exit 0", 1));
  EXPECT_EQ(failed.reason, "cannot start /no/such/muster-agent: No such file or directory");
}

TEST_F(Launch, SecretsAreForTheOwnerAlone) {
  run("exit 0");
  for (const auto* name : {"launch.json", "status.jsonl", "lock"}) {
    const auto mode = std::filesystem::status(folder(1) / name).permissions();
    EXPECT_EQ(mode & (std::filesystem::perms::group_all | std::filesystem::perms::others_all),
              std::filesystem::perms::none)
        << name;
  }
}

}  // namespace test
