// Goal: what stands beside a rank on Slurm starts its program as the job file says, ends it when its attempt is over,
// asks for a save when nobody else can, and leaves nothing behind.
// Method: the real muster-agent beside a shell script, as srun would start it, before a fake controller or none.
#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "agent/protocol/facts.h"
#include "controller/rpc/rpc_server.h"
#include "spec/report_keys.h"
#include "tests/controller/rpc/fake_controller.h"
#include "tests/places.h"

namespace {

namespace fs = std::filesystem;
using rpc::testing::FakeController;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string read(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

template <class Condition>
bool eventually(Condition&& holds, std::chrono::milliseconds every = 10ms) {
  for (const auto until = Clock::now() + 60s; !holds(); std::this_thread::sleep_for(every)) {
    if (Clock::now() > until) return false;
  }
  return true;
}

/// A process that has ended may wait for its parent.
bool is_gone(pid_t pid) {
  const auto stat = read("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.compare(name_end + 1, 2, " Z") == 0;
}

class MusterAgent : public ::testing::Test {
 protected:
  MusterAgent() {
    std::string name = (fs::temp_directory_path() / "muster-agent-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    fs::create_directories(folder_ / "logs");
    launch_ = {{"format", 1},
               {"argv", {"/bin/sh", "-c", "true"}},
               {"env",
                {{"MUSTER_CONTROLLER", "127.0.0.1:" + std::to_string(server_->port())},
                 {"MUSTER_RANK_TOKEN", FakeController::kRankToken},
                 {"MUSTER_JOB_ID", "7"},
                 {"MUSTER_ATTEMPT", "1"}}},
               {"working_folder", folder_.string()},
               {"log_folder", (folder_ / "logs").string()},
               {"job_name", "job"},
               {"log_link", ""},
               {"fence_folder", ""},
               {"is_command", true},
               {"forward_signals", false},
               {"time_limit_ms", 0},
               {"stop_grace_ms", 30'000},
               {"report", spec::ReportSources{}},
               {"own_launcher", false}};
    controller_.set_interval(50ms);
  }
  ~MusterAgent() override {
    if (pid_ > 1) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  /// The program is a script, which finds the test's folder as its working folder.
  void start(const std::string& script, std::vector<std::string> variables = {}) {
    launch_["argv"] = {"/bin/sh", "-c", script};
    std::ofstream(folder_ / "launch.json") << launch_.dump();
    for (const char* fixed : {"SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_LOCALID=0", "SLURM_NODEID=0",
                              "SLURMD_NODENAME=n1", "PATH=/usr/bin:/bin", "MINE=the node's", "THEIRS=the node's"}) {
      variables.emplace_back(fixed);
    }
    std::vector<char*> environment;
    for (auto& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::vector<std::string> words = {::test::built_program("muster-agent"), "--attempt", folder_.string()};
    if (!oom_counter_.empty()) words.insert(words.end(), {"--oom-counter", oom_counter_});
    if (!cgroup_.empty()) {
      const auto enter = "echo $$ > " + (cgroup_ / "cgroup.procs").string() + " && exec \"$@\"";
      words.insert(words.begin(), {"/bin/sh", "-c", enter, "sh"});
    }
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    // A process group of its own, as slurmstepd gives each task.
    posix_spawnattr_t attributes;
    ASSERT_EQ(::posix_spawnattr_init(&attributes), 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    const int error = ::posix_spawn(&pid_, arguments[0], nullptr, &attributes, arguments.data(), environment.data());
    ::posix_spawnattr_destroy(&attributes);
    ASSERT_EQ(error, 0);
  }
  /// The variable by which the batch script tells of the job's own start.
  static std::string started_before(std::chrono::seconds time) {
    const auto at = std::chrono::system_clock::now() - time;
    return "MUSTER_STARTED_AT=" +
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch()).count());
  }
  /// The text that the script has written into a file; waited for.
  std::string written(const std::string& file) {
    EXPECT_TRUE(eventually([&] { return read(folder_ / file).ends_with("\n"); })) << file;
    return read(folder_ / file);
  }
  pid_t written_pid(const std::string& file) { return static_cast<pid_t>(std::atoi(written(file).c_str())); }
  /// muster-agent's wait status.
  int wait() {
    int status = -1;
    EXPECT_TRUE(eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }));
    pid_ = 0;
    return status;
  }
  agent::protocol::Status facts() const { return agent::protocol::parse_status(read(folder_ / "status.jsonl")); }
  agent::protocol::Exited end() const { return facts().exits.at(0); }
  /// The request that muster-agent sent the controller last.
  muster::v1::TaskRequest last_told() {
    muster::v1::TaskRequest last;
    EXPECT_TRUE(controller_.wait_until([&](const FakeController& c) {
      if (c.tasks.empty()) return false;
      last = c.tasks.back();
      return true;
    }));
    return last;
  }

  FakeController controller_;
  std::unique_ptr<rpc::Server> server_ = rpc::serve(controller_, "127.0.0.1:0");
  fs::path folder_;
  nlohmann::json launch_;
  std::string oom_counter_;  // empty: the kernel's
  fs::path cgroup_;          // empty: the test's
  pid_t pid_ = 0;
};

TEST_F(MusterAgent, TellsHowItsProgramEndedAndEndsAlike) {
  start("exit 7");
  const int status = wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(end().exit.code, 7);
  EXPECT_TRUE(facts().ended);
  EXPECT_EQ(last_told().state(), muster::v1::PROCESS_EXITED);
  EXPECT_EQ(last_told().exit_code(), 7);
  EXPECT_EQ(last_told().node(), "n1");
}

// A disk that hangs, and then refuses: the status file is a pipe, which cannot be opened before somebody reads it, nor
// written at a place.
TEST_F(MusterAgent, TellsTheEndOfItsProgramWhileTheDiskTakesItsTime) {
  const auto file = folder_ / "status.jsonl";
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  start("exit 7");
  ASSERT_TRUE(controller_.wait_until([](const auto& c) {
    return !c.tasks.empty() && c.tasks.back().state() == muster::v1::PROCESS_EXITED && c.tasks.back().exit_code() == 7;
  }));
  EXPECT_FALSE(is_gone(pid_)) << "the disk still has it";
  EXPECT_EQ(read(file), "");
  EXPECT_EQ(WEXITSTATUS(wait()), 7) << "a disk that refuses keeps no node";
}

// The controller tells a busy rank from an idle one. A child in a session of its own counts.
TEST_F(MusterAgent, TellsWhatItsRankUses) {
  start("setsid sh -c 'echo $$ > child; while :; do :; done' & read word; wait");
  const auto child = written_pid("child");
  double cores = 0;
  const bool told = controller_.wait_until([&](const auto& c) {
    if (c.tasks.empty()) return false;
    const auto& use = c.tasks.back().use();
    cores = use.cores();
    return cores > 0.06 && use.processes() >= 2 && use.memory_bytes() > 100'000;
  });
  EXPECT_TRUE(told) << cores;
  EXPECT_LT(cores, 1.5);
  ::kill(child, SIGKILL);
  ::kill(pid_, SIGTERM);
}

TEST_F(MusterAgent, TellsTheProgramsOwnError) {
  start("echo step 1; echo 'RuntimeError: CUDA error: it broke' >&2; exit 1");
  EXPECT_EQ(WEXITSTATUS(wait()), 1);
  EXPECT_EQ(end().error, "RuntimeError: CUDA error: it broke");
  EXPECT_EQ(last_told().error(), "RuntimeError: CUDA error: it broke");
}

TEST_F(MusterAgent, AnErrorFileOfTorchelasticsComesFirst) {
  start(R"(echo '{"message": {"message": "ValueError: bad batch", "extraInfo": {}}}' > $TORCHELASTIC_ERROR_FILE
echo 'RuntimeError: later' >&2; exit 1)");
  EXPECT_EQ(WEXITSTATUS(wait()), 1);
  EXPECT_EQ(last_told().error(), "ValueError: bad batch");
}

TEST_F(MusterAgent, AProgramFindsWhyItIsAskedToLeave) {
  for (const bool save : {true, false}) {
    SCOPED_TRACE(save);
    fs::remove(folder_ / "pid");
    fs::remove(folder_ / "stop");
    controller_.set_directive(muster::v1::DIRECTIVE_CONTINUE);
    start("trap 'cat $MUSTER_STOP > stop; exit 99' TERM; echo $$ > pid; while :; do sleep 0.05; done");
    written_pid("pid");
    controller_.set_stop_why(save ? "preempted" : "peer_failed", 30s);
    controller_.set_directive(save ? muster::v1::DIRECTIVE_SAVE_AND_LEAVE : muster::v1::DIRECTIVE_STOP);
    EXPECT_EQ(WEXITSTATUS(wait()), 99);
    const auto stop = nlohmann::json::parse(read(folder_ / "stop"));
    EXPECT_EQ(stop.at("why"), save ? "preempted" : "peer_failed");
    EXPECT_EQ(stop.at("save"), save);
    const auto left = stop.at("deadline").get<double>() - static_cast<double>(std::time(nullptr));
    EXPECT_GT(left, save ? 20 : -5);
    EXPECT_LT(left, save ? 40 : 5);
  }
}

// Whoever asks, it may have been told before it began; a controller that is away can't tell.
TEST_F(MusterAgent, AFencedAttemptsProgramIsNotEvenStarted) {
  server_->shutdown();
  fs::create_directories(folder_ / "checkpoints");
  const auto folder = (folder_ / "checkpoints").string();
  launch_["env"]["MUSTER_CHECKPOINT_FOLDER"] = folder;
  launch_["fence_folder"] = folder;
  for (const int fence : {2, 1}) {
    SCOPED_TRACE(fence);
    std::ofstream(folder_ / "checkpoints" / "FENCE") << "attempt " << fence << "\n";
    start("touch started");
    const auto code = WEXITSTATUS(wait());
    EXPECT_EQ(code, fence == 2 ? 127 : 0);
    EXPECT_EQ(fs::exists(folder_ / "started"), fence == 1);
    EXPECT_EQ(facts().failed ? facts().failed->reason : "", fence == 2 ? "its attempt is over already" : "");
    fs::remove(folder_ / "started");
  }
}

// A command's own checkpoint folder may be another job's, whose attempts are counted by themselves. musterd raises no
// fence there for the command.
TEST_F(MusterAgent, AFenceThatAnotherJobRaisedStopsNobody) {
  fs::create_directories(folder_ / "of-another-job");
  launch_["env"]["MUSTER_CHECKPOINT_FOLDER"] = (folder_ / "of-another-job").string();
  std::ofstream(folder_ / "of-another-job" / "FENCE") << "attempt 2\n";
  start("exit 7");
  EXPECT_EQ(WEXITSTATUS(wait()), 7);
  EXPECT_FALSE(facts().failed);
}

// The kernel's count alone says of a SIGKILL from outside whether it was for memory.
TEST_F(MusterAgent, AProgramThatTheKernelKilledForMemoryRanOutOfMemory) {
  oom_counter_ = folder_ / "memory.events";
  for (const bool for_memory : {true, false}) {
    SCOPED_TRACE(for_memory);
    fs::remove(folder_ / "pid");
    std::ofstream(oom_counter_) << "oom 1\noom_kill 1\n";
    start("echo $$ > pid; exec sleep 1000");
    const auto program = written_pid("pid");
    ASSERT_GT(program, 1);
    if (for_memory) std::ofstream(oom_counter_) << "oom 2\noom_kill 2\n";
    ::kill(program, SIGKILL);
    EXPECT_EQ(WEXITSTATUS(wait()), 128 + SIGKILL);
    EXPECT_EQ(end().out_of_memory, for_memory);
    EXPECT_EQ(last_told().signal(), SIGKILL);
    EXPECT_EQ(last_told().out_of_memory(), for_memory);
  }
}

// torchrun, or a trainer one of whose data loaders was killed. The machine's count says nothing about them.
TEST_F(MusterAgent, AProgramThatFailsForOneItStartedRanOutOfMemoryWhereSlurmCountsForItAlone) {
  for (const bool alone : {true, false}) {
    SCOPED_TRACE(alone);
    fs::remove(folder_ / "ready");
    fs::remove(folder_ / "go");
    const auto counters = folder_ / (alone ? "job_7/step_0/task_1" : "user.slice");
    fs::create_directories(counters);
    oom_counter_ = counters / "memory.events";
    std::ofstream(oom_counter_) << "oom_kill 1\n";
    start("echo > ready; while [ ! -e go ]; do sleep 0.01; done; exit 1");
    written("ready");
    std::ofstream(oom_counter_) << "oom_kill 2\n";
    std::ofstream(folder_ / "go").flush();
    EXPECT_EQ(WEXITSTATUS(wait()), 1);
    EXPECT_EQ(end().out_of_memory, alone);
  }
}

TEST_F(MusterAgent, WhatItKillsItselfDidNotRunOutOfMemory) {
  oom_counter_ = folder_ / "memory.events";
  std::ofstream(oom_counter_) << "oom_kill 1\n";
  start("trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done");
  written_pid("pid");
  std::ofstream(oom_counter_) << "oom_kill 2\n";
  controller_.set_directive(muster::v1::DIRECTIVE_STOP);
  EXPECT_EQ(WEXITSTATUS(wait()), 128 + SIGKILL);
  EXPECT_FALSE(end().out_of_memory);
}

/// A cgroup of 128 MiB and no swap below this process's own, with either version of cgroups; gone with it.
class SmallCgroup {
 public:
  SmallCgroup() {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; path_.empty() && std::getline(groups, line);) {
      if (const auto at = line.find(":memory:"); at != std::string::npos) {
        make("/sys/fs/cgroup/memory" + line.substr(at + 8), "memory.limit_in_bytes");
      } else if (line.starts_with("0::")) {
        make("/sys/fs/cgroup" + line.substr(3), "memory.max");
      }
    }
  }
  ~SmallCgroup() {
    std::error_code ignored;
    if (!path_.empty()) eventually([&] { return fs::remove(path_, ignored); });
  }
  /// Empty: none can be made here.
  const fs::path& path() const { return path_; }

 private:
  void make(const fs::path& parent, const char* limit) {
    const auto path = parent / ("muster-test-" + std::to_string(::getpid()));
    std::error_code refused;
    if (!fs::create_directory(path, refused)) return;
    std::ofstream(path / limit) << kLimit;
    for (const char* swap : {"memory.swappiness", "memory.swap.max"}) {
      if (fs::exists(path / swap)) std::ofstream(path / swap) << 0;
    }
    if (std::atol(read(path / limit).c_str()) == kLimit) {
      path_ = path;
    } else {
      fs::remove(path, refused);
    }
  }
  static constexpr long kLimit = 128 << 20;
  fs::path path_;
};

// The real thing, where this process may make cgroups with a limit.
TEST_F(MusterAgent, ARealKillOfTheKernelsIsTold) {
  const SmallCgroup small;
  if (small.path().empty()) GTEST_SKIP() << "no cgroup with a memory limit can be made here; it takes root";
  cgroup_ = small.path();
  start("x=x; i=0; while [ $i -lt 29 ]; do x=$x$x; i=$((i + 1)); done");
  EXPECT_EQ(WEXITSTATUS(wait()), 128 + SIGKILL);
  EXPECT_EQ(end().exit.signal, SIGKILL);
  EXPECT_TRUE(end().out_of_memory);
}

TEST_F(MusterAgent, WhatTheJobFileSetsStandsAboveTheNodesEnvironment) {
  launch_["env"]["MINE"] = "the job's";
  launch_["env"]["WORLD_SIZE"] = "1";
  start("echo $MINE, $THEIRS, $RANK of $WORLD_SIZE at ${MASTER_ADDR:+an address}:${MASTER_PORT:+a port} > seen");
  EXPECT_EQ(written("seen"), "the job's, the node's, 0 of 1 at an address:a port\n");
  EXPECT_EQ(wait(), 0);
}

// Libraries that a rank wants may be such that muster-agent itself cannot start with them.
TEST_F(MusterAgent, GivesItsRankTheLibrariesThatTheScriptKeptForIt) {
  start("echo ${LD_LIBRARY_PATH-none} ${LD_PRELOAD-none} ${MUSTER_RANK_LD_LIBRARY_PATH-gone} > seen",
        {"LD_LIBRARY_PATH=/of/the/task", "MUSTER_RANK_LD_LIBRARY_PATH=/old/conda", "MUSTER_RANK_LD_PRELOAD="});
  EXPECT_EQ(written("seen"), "/old/conda none gone\n");
  EXPECT_EQ(wait(), 0);
  launch_["env"]["LD_LIBRARY_PATH"] = "/of/the/job/file";
  fs::remove(folder_ / "seen");
  start("echo $LD_LIBRARY_PATH > seen", {"MUSTER_RANK_LD_LIBRARY_PATH=/old/conda"});
  EXPECT_EQ(written("seen"), "/of/the/job/file\n");
  EXPECT_EQ(wait(), 0);
}

TEST_F(MusterAgent, ARankIsToldItsNodesInTheirOrder) {
  start("echo $MUSTER_NODES $MUSTER_NODELIST $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_RANK $ROLE_WORLD_SIZE > seen",
        {"SLURM_STEP_NODELIST=n[3-4],a"});
  EXPECT_EQ(written("seen"), "3 n3,n4,a 0 3 0 1\n");
  EXPECT_EQ(wait(), 0);
}

TEST_F(MusterAgent, AnAttemptThatIsOverEndsAProgramThatDoesNotListen) {
  start("trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done");
  const auto program = written_pid("pid");
  controller_.set_directive(muster::v1::DIRECTIVE_STOP);
  const int status = wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL);
  EXPECT_EQ(end().exit.signal, SIGKILL);
  EXPECT_TRUE(is_gone(program));
}

TEST_F(MusterAgent, KilledItTakesItsProgramAlong) {
  server_->shutdown();  // nobody else could end it
  start("echo $$ > pid; exec sleep 1000");
  const auto program = written_pid("pid");
  ASSERT_GT(program, 1);
  ASSERT_FALSE(is_gone(program));
  ::kill(pid_, SIGKILL);
  wait();
  EXPECT_TRUE(eventually([&] { return is_gone(program); }));
}

TEST_F(MusterAgent, WhatTheProgramLeavesBehindInItsGroupEndsWithIt) {
  start("sleep 1000 & echo $! > pid; exit 0");
  const auto left = written_pid("pid");
  ASSERT_GT(left, 1);
  EXPECT_EQ(wait(), 0);
  EXPECT_TRUE(eventually([&] { return is_gone(left); }));
}

// Slurm without cgroups does not find them: they have sessions of their own, and init would be their parent.
TEST_F(MusterAgent, WhatTheProgramLeavesBehindInSessionsOfItsOwnEndsWithIt) {
  start(
      "setsid sh -c 'trap \"\" TERM; echo $$ > worker; while :; do sleep 0.05; done' & "
      "(setsid sh -c 'echo $$ > daemon; sleep 1000; true' &); "
      "while [ ! -s worker ] || [ ! -s daemon ]; do sleep 0.01; done; kill -9 $$");
  const auto worker = written_pid("worker"), daemon = written_pid("daemon");
  EXPECT_TRUE(controller_.wait_until([](const FakeController& c) {
    return !c.tasks.empty() && c.tasks.back().state() == muster::v1::PROCESS_EXITED;
  }));
  EXPECT_TRUE(is_gone(worker)) << "its end is told, and the next attempt may start";
  EXPECT_TRUE(is_gone(daemon));
  wait();
}

TEST_F(MusterAgent, KilledWithItsProcessGroupItLeavesNothingOnTheNode) {
  const auto attempt = folder_ / "attempt-1";
  fs::create_directories(attempt / "logs");
  launch_["env"]["MUSTER_ATTEMPT_FOLDER"] = attempt.string();
  launch_["log_folder"] = (attempt / "logs").string();
  start(
      "setsid sh -c 'trap \"\" TERM HUP; echo $$ > worker; while :; do sleep 0.05; done' & "
      "(env -u MUSTER_ATTEMPT_FOLDER setsid sh -c 'echo $$ > renamed; sleep 1000; true' &); "
      "while [ ! -s worker ] || [ ! -s renamed ]; do sleep 0.01; done; echo > ready; sleep 1000");
  written("ready");
  const auto worker = written_pid("worker"), renamed = written_pid("renamed");
  ASSERT_EQ(::getpgid(pid_), pid_);
  ASSERT_EQ(::kill(-pid_, SIGKILL), 0);
  wait();
  EXPECT_TRUE(eventually([&] { return is_gone(worker) && is_gone(renamed); })) << "the next attempt may be elsewhere";
}

TEST_F(MusterAgent, KilledItsSuccessorEndsWhatTheProgramLeftOnTheNode) {
  const auto attempt = [&](const std::string& job, int number) {
    return (folder_ / job).string() + "/attempt-" + std::to_string(number);
  };
  const auto leave = [&](const std::string& folder, int number, const std::string& file) {
    fs::create_directories(folder);
    const auto command = "cd " + folder_.string() + " && MUSTER_ATTEMPT=" + std::to_string(number) +
                         " MUSTER_ATTEMPT_FOLDER=" + folder + " setsid sh -c 'echo $$ > " + file +
                         "; exec sleep 1000' &";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return written_pid(file);
  };
  const auto old = leave(attempt("7", 1), 1, "old");
  const auto later = leave(attempt("7", 3), 3, "later");
  const auto other = leave(attempt("8", 1), 1, "other");
  launch_["env"]["MUSTER_ATTEMPT"] = "2";
  launch_["env"]["MUSTER_ATTEMPT_FOLDER"] = attempt("7", 2);
  start(
      "if [ ! -e /proc/$(cat old) ] || grep -q ') Z ' /proc/$(cat old)/stat; then echo alone > found; "
      "else echo beside > found; fi");
  EXPECT_EQ(written("found"), "alone\n");
  EXPECT_TRUE(is_gone(old));
  EXPECT_FALSE(is_gone(later)) << "of an attempt after this one";
  EXPECT_FALSE(is_gone(other)) << "of another job";
  for (const auto pid : {later, other}) ::kill(pid, SIGKILL);
  wait();
}

TEST_F(MusterAgent, ASignalIsToldAndHandedOnWhereSlurmReachesTheTaskAlone) {
  for (const bool forwards : {true, false}) {
    SCOPED_TRACE(forwards ? "handed on" : "told alone");
    fs::remove(folder_ / "pid");
    launch_["forward_signals"] = forwards;
    start("trap 'exit 99' TERM; echo $$ > pid; while [ ! -e leave ]; do sleep 0.05; done");
    written_pid("pid");
    ::kill(pid_, SIGTERM);
    const auto told = [](const FakeController& c) {
      return !c.tasks.empty() && !c.tasks.back().signals_seen().empty() && c.tasks.back().signals_seen(0) == SIGTERM;
    };
    EXPECT_TRUE(controller_.wait_until(told));
    if (!forwards) std::ofstream(folder_ / "leave") << "\n";
    EXPECT_EQ(WEXITSTATUS(wait()), forwards ? 99 : 0);
  }
}

// Slurm signals a step's processes one by one. To a controller that never hears of it the program would be done.
TEST_F(MusterAgent, ASignalThatReachesTheTaskAfterTheEndOfItsProgramIsTold) {
  start("trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done");
  const auto program = written_pid("pid");
  ASSERT_GT(program, 1);
  ::kill(program, SIGTERM);
  ASSERT_TRUE(eventually([&] { return ::kill(program, 0) != 0; }, 1ms)) << "muster-agent has it, then";
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait(), 0);
  ASSERT_EQ(last_told().state(), muster::v1::PROCESS_EXITED);
  EXPECT_THAT(last_told().signals_seen(), ElementsAre(SIGTERM));
  EXPECT_THAT(end().signals_seen, ElementsAre(SIGTERM));
}

// A user may tell a program of each hour of a week. musterd takes 64 signals of a task, and no message with more.
TEST_F(MusterAgent, SignalsThatComeAgainAndAgainFitIntoAMessage) {
  launch_["forward_signals"] = true;
  start("trap 'echo x >> count' USR1; echo $$ > pid; while [ ! -e leave ]; do sleep 0.01; done");
  written_pid("pid");
  for (int i = 1; i <= 70; ++i) {
    ::kill(pid_, SIGUSR1);
    ASSERT_TRUE(eventually([&] { return std::ranges::count(read(folder_ / "count"), '\n') >= i; }, 1ms));
  }
  std::ofstream(folder_ / "leave") << "\n";
  EXPECT_EQ(wait(), 0);
  EXPECT_THAT(last_told().signals_seen(), AllOf(SizeIs(Le(64)), Each(SIGUSR1), Not(IsEmpty())));
}

TEST_F(MusterAgent, ASaveThatIsAskedForReachesACommandOnce) {
  start("n=0; trap 'n=$((n+1)); echo $n > terms' TERM; echo $$ > pid; while [ ! -e leave ]; do sleep 0.05; done");
  written_pid("pid");
  controller_.set_directive(muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  EXPECT_EQ(written("terms"), "1\n");
  const auto heard = [&] {
    std::size_t count = 0;
    controller_.wait_until([&](const FakeController& c) { return (count = c.tasks.size(), true); });
    return count;
  };
  const auto before = heard();
  EXPECT_TRUE(eventually([&] { return heard() >= before + 5; }));
  EXPECT_EQ(written("terms"), "1\n");
  std::ofstream(folder_ / "leave") << "\n";
  EXPECT_EQ(wait(), 0);
}

// Slurm has sent SIGTERM to the program, too: a second one would mean "at once".
TEST_F(MusterAgent, AProgramThatSlurmHasAskedToLeaveIsNotAskedAgain) {
  start("n=0; trap 'n=$((n+1)); echo $n > terms' TERM; echo $$ > pid; while [ ! -e leave ]; do sleep 0.05; done");
  const auto program = written_pid("pid");
  ::kill(pid_, SIGTERM);
  ::kill(program, SIGTERM);
  EXPECT_EQ(written("terms"), "1\n");
  EXPECT_TRUE(controller_.wait_until(
      [](const FakeController& c) { return !c.tasks.empty() && !c.tasks.back().signals_seen().empty(); }));
  controller_.set_directive(muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  std::size_t before = 0, now = 0;
  controller_.wait_until([&](const FakeController& c) { return (before = c.tasks.size(), true); });
  EXPECT_TRUE(eventually([&] {
    controller_.wait_until([&](const FakeController& c) { return (now = c.tasks.size(), true); });
    return now >= before + 5;
  }));
  std::ofstream(folder_ / "leave") << "\n";
  EXPECT_EQ(wait(), 0);
  EXPECT_EQ(read(folder_ / "terms"), "1\n");
}

// The job began to run 59 minutes and 28 seconds ago, at its setup; the rank has only just started. Half a minute
// before the limit is near, and by then nobody has heard of the controller for long enough.
TEST_F(MusterAgent, WithTheControllerAwayItAsksForASaveBeforeTheJobsTimeLimit) {
  server_->shutdown();
  launch_["time_limit_ms"] = 3'600'000;
  start("trap 'cat $MUSTER_STOP > stop; echo saved > saved; exit 99' TERM; while :; do sleep 0.05; done",
        {started_before(3568s)});
  EXPECT_EQ(written("saved"), "saved\n");
  EXPECT_EQ(WEXITSTATUS(wait()), 99);
  const auto stop = nlohmann::json::parse(read(folder_ / "stop"));
  EXPECT_EQ(stop.at("why"), "time_limit");
  EXPECT_EQ(stop.at("save"), true);
  EXPECT_THAT(end().signals_seen, Contains(SIGUSR2)) << "so the cause is the limit";
}

// It might have asked, had it lived a second longer.
TEST_F(MusterAgent, AControllerThatGoesAwayWhenItsTimeToAskHasComeIsStoodInFor) {
  launch_["time_limit_ms"] = 3'600'000;
  launch_["stop_grace_ms"] = 600'000;
  start("trap 'echo saved > saved; exit 99' TERM; while :; do sleep 0.05; done", {started_before(3070s)});
  ASSERT_TRUE(controller_.wait_until([](const FakeController& c) { return c.tasks.size() >= 20; }));
  EXPECT_FALSE(fs::exists(folder_ / "saved"));
  server_->shutdown();
  EXPECT_EQ(written("saved"), "saved\n");
  EXPECT_EQ(WEXITSTATUS(wait()), 99);
}

TEST_F(MusterAgent, ALimitThatHasPassedWasChangedAndSaysNothing) {
  server_->shutdown();
  launch_["time_limit_ms"] = 3'600'000;
  start("trap 'echo saved > saved; exit 99' TERM; i=0; while [ $i -lt 120 ]; do sleep 0.05; i=$((i + 1)); done",
        {started_before(3601s)});
  EXPECT_EQ(wait(), 0) << "six seconds later";
  EXPECT_FALSE(fs::exists(folder_ / "saved"));
}

TEST_F(MusterAgent, WithAControllerTheTimeLimitIsThatOnesBusiness) {
  launch_["time_limit_ms"] = 3'600'000;
  start("trap 'exit 99' TERM; while [ ! -e leave ]; do sleep 0.05; done", {started_before(3590s)});
  // Long after it would have asked.
  EXPECT_TRUE(controller_.wait_until([](const FakeController& c) { return c.tasks.size() >= 20; }));
  std::ofstream(folder_ / "leave") << "\n";
  EXPECT_EQ(wait(), 0);
  EXPECT_THAT(last_told().signals_seen(), IsEmpty());
}

}  // namespace
