// Goal: what the client reports about a cluster is true on a real cluster.
// Method: a private Slurm 22.05 of tools/cluster. Each case has its own cluster, which ends with the case.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "slurm/batch_script.h"
#include "slurm/host_list.h"
#include "slurm/slurm_client.h"
#include "tests/places.h"
#include "tests/slurm/temporary_folder.h"

namespace slurm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using ::testing::SizeIs;
using testing::TemporaryFolder;
using namespace std::chrono_literals;

/// A cluster of two nodes. The cluster ends when this process's pipe to it closes, so also when the test is killed.
class SlurmClient : public ::testing::Test {
 protected:
  void start(const std::string& options = {}) {
    const auto command = "exec python3 -B '" + ::test::source_folder() +
                         "/tools/cluster' start --foreground --die-with-parent --folder '" + cluster_.native() +
                         "' --nodes 2 --json " + options + " >'" + (folder_ / "ready").native() + "' 2>&1";
    process_ = ::popen(command.c_str(), "w");
    ASSERT_NE(process_, nullptr);
    ASSERT_TRUE(eventually([&] { return read_file(folder_ / "ready").find('\n') != std::string::npos; }, 150s))
        << "no cluster in time";
    ASSERT_THAT(read_file(folder_ / "ready"), HasSubstr("\"conf\"")) << "the cluster did not start";
  }
  void TearDown() override {
    if (process_ != nullptr) ::pclose(process_);
  }

  template <class Condition>
  static bool eventually(Condition holds, std::chrono::seconds within = 20s) {
    const auto limit = std::chrono::steady_clock::now() + within;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(50ms);
    }
    return true;
  }

  BatchScript job(std::vector<std::string> command) const {
    BatchScript s;
    s.launch.command = std::move(command);
    s.output = {.path = (folder_ / "log").native(), .literal = true};
    s.options["time"] = "10";
    return s;
  }
  JobId submit(const BatchScript& s, const std::vector<std::string>& arguments = {}) {
    EXPECT_THAT(problems(s), IsEmpty());
    const auto answer = client_.submit(render(s), arguments);
    if (const auto* id = std::get_if<JobId>(&answer)) return *id;
    const auto* refused = std::get_if<Refused>(&answer);
    ADD_FAILURE() << "not submitted: " << (refused != nullptr ? refused->why : "no answer");
    return {};
  }
  std::optional<ListedJob> look(const JobId& id) {
    const auto jobs = client_.list();
    if (!jobs) ADD_FAILURE() << jobs.why();
    if (!jobs) return std::nullopt;
    for (const auto& each : *jobs) {
      if (each.id == id) return each;
    }
    return std::nullopt;
  }
  bool reaches(const JobId& id, JobState state) {
    return eventually([&] {
      const auto now = look(id);
      return now && now->state.state == state;
    });
  }
  /// Waits until slurmd accepts a job's next run after a requeue. slurmd refuses a credential made in the second in
  /// which it revoked the last one, and the run then ends with 1. Slurm holds requeued jobs for that reason.
  static void until_slurmd_takes_another() {
    const auto requeued = std::chrono::system_clock::now();
    EXPECT_TRUE(eventually([&] { return std::chrono::system_clock::now() - requeued > 2s; }));
  }
  /// Everything that Slurm prints about the job.
  std::string described(const JobId& id) {
    const auto file = folder_ / "described";
    const auto command = "SLURM_CONF='" + (cluster_ / "slurm.conf").native() + "' scontrol show job " + to_string(id) +
                         " >'" + file.native() + "' 2>&1";
    return std::system(command.c_str()) == 0 ? read_file(file) : "scontrol failed: " + read_file(file);
  }
  /// Runs a command that only people use.
  void scontrol(const std::string& what) {
    const auto command = "SLURM_CONF='" + (cluster_ / "slurm.conf").native() + "' scontrol " + what;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  void control(const std::string& what) {
    ASSERT_EQ(std::system(("python3 -B '" + ::test::source_folder() + "/tools/cluster' " + what + " --folder '" +
                           cluster_.native() + "' >/dev/null 2>&1")
                              .c_str()),
              0);
  }

  const TemporaryFolder folder_;
  const std::filesystem::path cluster_ = folder_ / "c";
  base::ProcessRunner runner_;
  Client client_{runner_, {.conf = (cluster_ / "slurm.conf").native()}};
  std::FILE* process_ = nullptr;
};

TEST_F(SlurmClient, AJobIsFollowedFromSubmissionToItsExitCode) {
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_THAT(client_.list().value(), IsEmpty());
  auto s = job({"bash", "-c", "exit 7"});
  s.name = "it's a \"job\" 100% #1 \\ |~";
  s.comment = "muster:a~b:1.2 'x' \"y\" \\ #";
  const auto id = submit(s);
  ASSERT_TRUE(reaches(id, JobState::kFailed));
  const auto ended = look(id).value();
  EXPECT_EQ(ended.comment, s.comment);
  EXPECT_EQ(ended.exit, (ExitStatus{7, 0}));
  EXPECT_EQ(ended.reason, "NonZeroExitCode");
  EXPECT_EQ(ended.time_limit, 600s);
  EXPECT_EQ(ended.restarts, 0U);
  EXPECT_TRUE(ended.started && ended.ends && ended.submitted);
  EXPECT_LE(std::chrono::abs(std::chrono::system_clock::now() - *ended.started), 60s) << "seconds since 1970, in UTC";
  EXPECT_EQ(std::get<std::vector<std::string>>(expand_hosts(ended.node_list)).size(), 1U);
}

TEST_F(SlurmClient, HostilePathsAndValuesReachTheJob) {
  ASSERT_NO_FATAL_FAILURE(start());
  const auto odd = folder_ / "it's 100% \"x\" $y `z`\n\\";
  std::filesystem::create_directory(odd);
  const std::string value = "a\nb 'c' \"d\" $e\r%";
  auto s = job({"bash", "-c", "printf '%s|%s|' \"$PWD\" \"$1\"", "x", value});
  s.chdir = odd.native();
  for (const std::string name : {"log 100% %j.txt", "log\n\\%j"}) {
    s.output = {.path = (odd / name).native(), .literal = true};
    ASSERT_TRUE(reaches(submit(s), JobState::kCompleted)) << read_file(odd / name);
    EXPECT_EQ(read_file(odd / name), odd.native() + "|" + value + "|");
  }
}

TEST_F(SlurmClient, ArraysAreListedElementByElementAndRunAsManyAtOnceAsTheyMay) {
  ASSERT_NO_FATAL_FAILURE(start());
  auto s = job({"sleep", "{i}00"});
  s.array = ArrayTasks{{1, 2, 5}, 1};
  s.index_mark = "{i}";
  const auto id = submit(s);
  ASSERT_TRUE(reaches({id.job, 1}, JobState::kRunning));
  EXPECT_EQ(look({id.job, 5})->state.state, JobState::kPending);
  EXPECT_TRUE(eventually([&] { return look({id.job, 5})->reason == "JobArrayTaskLimit"; }));
  EXPECT_FALSE(look({id.job, 3}));
  scontrol("update JobId=" + std::to_string(id.job) + " ArrayTaskThrottle=0");
  EXPECT_TRUE(reaches({id.job, 5}, JobState::kRunning));
  EXPECT_TRUE(client_.cancel({{id.job, 2}}));
  EXPECT_TRUE(reaches({id.job, 2}, JobState::kCancelled));
  EXPECT_EQ(look({id.job, 1})->state.state, JobState::kRunning);
}

TEST_F(SlurmClient, HoldReleaseLimitAndCancel) {
  ASSERT_NO_FATAL_FAILURE(start());
  auto s = job({"sleep", "100"});
  s.options["hold"] = std::nullopt;
  const auto id = submit(s);
  EXPECT_EQ(look(id)->priority, 0U);
  EXPECT_TRUE(client_.release(id));
  ASSERT_TRUE(reaches(id, JobState::kRunning));
  EXPECT_TRUE(client_.update_time_limit(id, 33min));
  EXPECT_EQ(look(id)->time_limit, 1980s);
  EXPECT_TRUE(client_.cancel({id}));
  ASSERT_TRUE(reaches(id, JobState::kCancelled));
  EXPECT_TRUE(client_.cancel({id, {999999, {}}})) << "nothing left to do is done";
  EXPECT_TRUE(client_.release({999999, {}}).refused());
}

TEST_F(SlurmClient, AnOrdinaryUserMayShortenAJobThatRunsAndNotProlongIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "root alone can be somebody else for a moment";
  ASSERT_NO_FATAL_FAILURE(start());
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  for (const std::string name : {"sbatch", "squeue", "scontrol"}) {
    const auto program = folder_ / name;
    testing::write_file(program,
                        "#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups " + name + " \"$@\"\n");
    std::filesystem::permissions(program, std::filesystem::perms(0755));
  }
  Client nobody(runner_, {.conf = (cluster_ / "slurm.conf").native(), .programs = folder_.path().native() + "/"});
  auto s = job({"sleep", "100"});
  s.output = {.path = "/dev/null", .literal = true};
  s.chdir = "/";
  const auto answer = nobody.submit(render(s));
  ASSERT_TRUE(std::holds_alternative<JobId>(answer));
  const auto id = std::get<JobId>(answer);
  ASSERT_TRUE(reaches(id, JobState::kRunning));
  EXPECT_TRUE(nobody.update_time_limit(id, 5min));
  const auto more = nobody.update_time_limit(id, 20min);
  EXPECT_TRUE(more.refused());
  EXPECT_THAT(more.why(), HasSubstr("Access/permission denied"));
  EXPECT_TRUE(nobody.update_time_limit(id, 0min).refused());
  EXPECT_EQ(look(id)->time_limit, 300s);
}

TEST_F(SlurmClient, ARequeuedJobNeedsNotWaitForItsHoldAndLeavesAtOnce) {
  ASSERT_NO_FATAL_FAILURE(start("--cred-expire 120"));
  auto s = job({"sleep", "100"});
  s.steps.leave_when_restarted = true;
  const auto id = submit(s);
  ASSERT_TRUE(reaches(id, JobState::kRunning));
  scontrol("requeue " + to_string(id));
  ASSERT_TRUE(reaches(id, JobState::kPending));
  EXPECT_EQ(look(id)->restarts, 1U);
  until_slurmd_takes_another();
  scontrol("update JobId=" + to_string(id) + " StartTime=now");
  ASSERT_TRUE(reaches(id, JobState::kCompleted)) << described(id);
  EXPECT_EQ(look(id)->exit, (ExitStatus{0, 0}));
  EXPECT_THAT(read_file(folder_ / "log"), HasSubstr("restart 1 by Slurm itself"));
}

TEST_F(SlurmClient, AVictimSaysSinceWhenItIsPreemptedWhileItHasItsGrace) {
  ASSERT_NO_FATAL_FAILURE(start("--grace 60"));
  const auto deaf = (folder_ / "deaf").native();
  auto low = job({"bash", "-c", "trap '' TERM; touch " + deaf + "$SLURM_PROCID; while :; do sleep 1; done"});
  low.options["partition"] = "low";
  low.options["nodes"] = "2";
  low.options["exclusive"] = std::nullopt;
  const auto victim = submit(low);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(deaf + "0"); }));
  EXPECT_FALSE(look(victim)->preempted);
  auto high = low;
  high.options["partition"] = "high";
  submit(high);
  ASSERT_TRUE(eventually([&] { return look(victim)->preempted.has_value(); }));
  const auto now = look(victim).value();
  EXPECT_EQ(classify(now.state.state), JobPhase::kActive) << "RUNNING, and SIGNALING for a moment";
  EXPECT_LE(std::chrono::abs(std::chrono::system_clock::now() - now.preempted.value_or(Time{})), 60s);
}

TEST_F(SlurmClient, AVictimThatWaitsAgainDoesNotSayWhyAnyMore) {
  ASSERT_NO_FATAL_FAILURE(start("--conf PreemptExemptTime=00:00:00"));
  auto low = job({"sleep", "100"});
  low.options["partition"] = "low";
  low.options["nodes"] = "2";
  low.options["exclusive"] = std::nullopt;
  low.options["requeue"] = std::nullopt;
  const auto victim = submit(low);
  ASSERT_TRUE(reaches(victim, JobState::kRunning));
  auto high = low;
  high.options["partition"] = "high";
  const auto winner = submit(high);
  ASSERT_TRUE(reaches(winner, JobState::kRunning));
  ASSERT_TRUE(eventually([&] { return look(victim)->restarts == 1; }));
  EXPECT_EQ(classify(look(victim)->state.state), JobPhase::kQueued);
  EXPECT_FALSE(look(victim)->preempted) << "this is what accounting is for";
}

TEST_F(SlurmClient, SlurmSaysBeforehandWhatItWouldDo) {
  ASSERT_NO_FATAL_FAILURE(start());
  const auto start_at = client_.test_only(render(job({"true"})));
  ASSERT_TRUE(start_at) << start_at.why();
  EXPECT_TRUE(start_at->start);
  EXPECT_EQ(start_at->partition, "main");
  auto wide = job({"true"});
  wide.options["nodes"] = "50";
  EXPECT_TRUE(client_.test_only(render(wide)).refused());
  wide.options["partition"] = "nope";
  const auto refused = client_.submit(render(wide));
  ASSERT_TRUE(std::holds_alternative<Refused>(refused));
  EXPECT_THAT(std::get<Refused>(refused).why, HasSubstr("Invalid partition name"));
  EXPECT_THAT(client_.list().value(), IsEmpty());
}

TEST_F(SlurmClient, TheClusterIsDescribed) {
  ASSERT_NO_FATAL_FAILURE(start("--grace 10"));
  const auto now = [] { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); };
  const auto before = now();
  const auto config = client_.config();
  ASSERT_TRUE(config) << config.why();
  EXPECT_EQ(config->fields.at("ClusterName"), "muster");
  EXPECT_GE(config->now, before);
  EXPECT_LE(config->now, now());
  EXPECT_EQ(config->fields.at("KillWait"), "2 sec");
  EXPECT_NE(config->fields.at("AccountingStorageType"), "accounting_storage/slurmdbd");
  const auto partitions = client_.partitions();
  ASSERT_TRUE(partitions) << partitions.why();
  ASSERT_THAT(*partitions, SizeIs(3));
  for (const auto& each : *partitions) {
    EXPECT_EQ(each.total_nodes, 2U);
    EXPECT_EQ(each.is_default, each.name == "main");
    if (each.name == "low") {
      EXPECT_EQ(each.preempt_mode, "REQUEUE");
      EXPECT_EQ(each.grace, 10s);
    }
  }
  const auto nodes = client_.nodes();
  ASSERT_TRUE(nodes) << nodes.why();
  ASSERT_THAT(*nodes, SizeIs(2));
  EXPECT_TRUE((*nodes)[0].usable());
  EXPECT_EQ((*nodes)[0].gres, "gpu:fake:2");
  EXPECT_THAT((*nodes)[0].partitions, Contains("high"));
  EXPECT_TRUE(client_.history({1}).refused()) << "no accounting here";
}

TEST_F(SlurmClient, WithoutSlurmctldEverythingIsUnreachableAndNothingIsAssumed) {
  ASSERT_NO_FATAL_FAILURE(start());
  const auto id = submit(job({"sleep", "100"}));
  ASSERT_TRUE(reaches(id, JobState::kRunning));
  control("stop-ctld");
  EXPECT_TRUE(client_.list().unreachable());
  EXPECT_TRUE(std::holds_alternative<Unreachable>(client_.submit(render(job({"true"})))));
  EXPECT_TRUE(client_.cancel({id}).unreachable());
  EXPECT_TRUE(client_.release(id).unreachable());
  EXPECT_TRUE(client_.nodes().unreachable());
  EXPECT_TRUE(client_.test_only(render(job({"true"}))).unreachable());
  control("start-ctld");
  EXPECT_TRUE(eventually([&] { return client_.list().has_value(); }));
  EXPECT_EQ(look(id)->state.state, JobState::kRunning);
}

TEST_F(SlurmClient, AccountingRemembersEachRun) {
  ASSERT_NO_FATAL_FAILURE(start("--accounting"));
  auto s = job({"bash", "-c", "[ -n \"$SLURM_RESTART_COUNT\" ] || sleep 100; exit 3"});
  const auto id = submit(s);
  ASSERT_TRUE(reaches(id, JobState::kRunning));
  ASSERT_EQ(client_.config()->fields.at("AccountingStorageType"), "accounting_storage/slurmdbd");
  scontrol("requeue " + to_string(id));
  ASSERT_TRUE(reaches(id, JobState::kPending));
  until_slurmd_takes_another();
  scontrol("update JobId=" + to_string(id) + " StartTime=now");
  ASSERT_TRUE(reaches(id, JobState::kFailed));
  std::vector<PastRun> runs;
  ASSERT_TRUE(eventually([&] {
    const auto answer = client_.history({id.job, 999999});
    EXPECT_TRUE(answer) << answer.why();
    if (answer) runs = *answer;
    return runs.size() == 2 && runs[1].state.state == JobState::kFailed;
  }));
  EXPECT_EQ(runs[1].exit, (ExitStatus{3, 0})) << read_file(folder_ / "log") << " squeue: " << look(id)->exit->code;
  EXPECT_NE(runs[0].state.state, JobState::kFailed);
}

}  // namespace
}  // namespace slurm
