#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <sstream>
#include <string_view>

#include "controller/executors/local/follower.h"
#include "tests/controller/executors/local/world.h"
#include "tests/places.h"

// Goal: whatever is killed at whatever point, one set of ranks runs at most, and its end becomes known.
// Method: launchers and agents that kill themselves at a named step; ranks append a line to a file when they run.
namespace test {

constexpr const char* kStaysAndCounts = "echo $RANK >> starts; exec sleep 1000";

class LauncherCrash : public World, public testing::WithParamInterface<const char*> {};

TEST_P(LauncherCrash, TheNextLaunchFindsOrStartsOneSetOfRanks) {
  end_controller();
  const int ended =
      run_program({::test::built_program("crashing_launcher"), root_.string(), ::test::built_program("muster-agent"),
                   "1", kStaysAndCounts, "2", GetParam(), desk_.address()});
  ASSERT_TRUE(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
  restart_controller();
  const auto launched = must_launch(1, kStaysAndCounts, 2);
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/starts") >= 2; }));
  ASSERT_EQ(launched.pids.size(), 2u);
  for (const auto pid : launched.pids) EXPECT_TRUE(is_alive(pid));
  stop({1, 1}, {0ms});
  ASSERT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
  ASSERT_TRUE(eventually([&] { return status(1).ended; }));
  EXPECT_EQ(count_lines(root_ / "work/starts"), 2u);
}

INSTANTIATE_TEST_SUITE_P(Steps, LauncherCrash, testing::Values("written", "spawned", "answered", "returned"),
                         [](const auto& step) { return std::string(step.param); });

/// No file can be opened in this process while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

class UnsureLaunch : public World {
 protected:
  bool is_unsure(const executors::LaunchAnswer& answer) {
    const auto* later = std::get_if<executors::LaunchLater>(&answer);
    return later != nullptr && later->unsure;
  }
  void expect_one_set_of_ranks() {
    must_launch(1, kStaysAndCounts, 2);
    ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/starts") >= 2; }));
    stop({1, 1}, {0ms});
    ASSERT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
    EXPECT_EQ(count_lines(root_ / "work/starts"), 2u);
  }
};

// The GPUs of an attempt that "could not be started" would be given to the next one, beside the ranks that start late.
TEST_F(UnsureLaunch, AnAgentThatAControllerBeforeStartedAndThatHasStartedNothingYetMayStillDo) {
  end_controller();
  write_file(root_ / "stop_at", "forked");
  const int ended =
      run_program({::test::built_program("crashing_launcher"), root_.string(), ::test::built_program("crashing_agent"),
                   "1", kStaysAndCounts, "2", "spawned", desk_.address()});
  ASSERT_TRUE(WIFSIGNALED(ended));
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "stopped") == 1; }));
  launch_limit_ = 200ms;
  restart_controller();
  EXPECT_TRUE(is_unsure(launch(1, kStaysAndCounts, 2)));
  EXPECT_TRUE(is_unsure(withdraw(request_of(1, kStaysAndCounts, 2)).value()));
  EXPECT_TRUE(executor_->is_there({1, 1}));
  ::kill(std::stoi(read_file(root_ / "stopped")), SIGCONT);
  launch_limit_ = kLimit;
  restart_controller();
  expect_one_set_of_ranks();
}

TEST_F(UnsureLaunch, WhatCannotBeReadMayRun) {
  std::optional<NoDescriptors> none;
  on_step_ = [&](std::string_view step) {
    if (step == "answered") none.emplace();
  };
  restart_controller();
  EXPECT_TRUE(is_unsure(launch(1, kStaysAndCounts, 2))) << "its agent has said that they run";
  EXPECT_TRUE(is_unsure(launch(1, kStaysAndCounts, 2)));
  none.reset();
  expect_one_set_of_ranks();
}

class AgentCrash : public World {
 protected:
  void crash_at(const std::string& step) {
    write_file(root_ / "crash_at", step);
    restart_controller(::test::built_program("crashing_agent"));
  }
};

TEST_F(AgentCrash, BeforeItsRecordNothingHasRunAndTheNextLaunchStarts) {
  crash_at("forked");
  const auto answer = launch(1, kStaysAndCounts, 2);
  const auto* failed = std::get_if<core::AttemptLaunchFailed>(&answer);
  ASSERT_TRUE(failed);
  EXPECT_TRUE(failed->retryable);
  EXPECT_THAT(failed->reason, testing::StartsWith("its agent ended without a word; see "));
  EXPECT_FALSE(std::filesystem::exists(root_ / "work/starts"));
  restart_controller();
  must_launch(1, kStaysAndCounts, 2);
  EXPECT_TRUE(eventually([&] { return count_lines(root_ / "work/starts") == 2; }));
}

TEST_F(AgentCrash, AfterItsRecordTheAttemptIsGoneAndNeverStartedAgain) {
  crash_at("recorded");
  const auto launched = must_launch(1, kStaysAndCounts, 2);
  ASSERT_TRUE(facts_.wait_for(1));
  EXPECT_EQ(facts_.of<core::AttemptGone>().size(), 1u);
  for (const auto pid : launched.pids) EXPECT_FALSE(is_alive(pid));
  restart_controller();
  EXPECT_EQ(must_launch(1, kStaysAndCounts, 2), launched);
  ASSERT_TRUE(facts_.wait_for(2));
  EXPECT_EQ(facts_.of<core::AttemptGone>().size(), 2u);
  EXPECT_FALSE(std::filesystem::exists(root_ / "work/starts"));
}

TEST_F(AgentCrash, WithRanksRunningKillsThemAndTheAttemptIsGone) {
  crash_at("running");
  const auto launched = must_launch(1, kStaysAndCounts, 2);
  ASSERT_TRUE(facts_.wait_for(1));
  const auto gone = facts_.of<core::AttemptGone>();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].cause, core::Cause::kControllerLost);
  EXPECT_EQ(gone[0].reason, "its agent was killed; no process is left, and how these ranks ended is not known: 0, 1");
  for (const auto pid : launched.pids) EXPECT_FALSE(is_alive(pid));
}

TEST_F(AgentCrash, AfterARecordedExitTellsTheExitAndThatTheRestIsGone) {
  crash_at("exited");
  must_launch(1, "[ $RANK = 1 ] && exit 5; exec sleep 1000", 2);
  ASSERT_TRUE(facts_.wait_for(2));
  EXPECT_EQ(facts_.exit_of(1)->exit.code, 5);
  EXPECT_THAT(facts_.of<core::AttemptGone>().at(0).reason, testing::EndsWith("not known: 0"));
}

TEST_F(AgentCrash, LeavesNoGrandchildren) {
  const auto launched =
      must_launch(1, "sh -c 'trap \"\" TERM HUP; echo $$ > child; while :; do sleep 0.05; done' & wait");
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/child") == 1; }));
  const auto child = std::stoll(read_file(root_ / "work/child"));
  ::kill(static_cast<pid_t>(agent_of(1)), SIGKILL);
  ASSERT_TRUE(facts_.wait_for(1));
  EXPECT_EQ(facts_.of<core::AttemptGone>().size(), 1u);
  EXPECT_FALSE(is_alive(launched.pids.at(0)));
  EXPECT_FALSE(is_alive(child));
}

/// torchrun starts its workers in sessions of their own. So do daemons, whose parent has gone.
constexpr const char* kInOwnSessions =
    "setsid sh -c 'trap \"\" TERM HUP; echo $$ >> children; while :; do sleep 0.05; done' & "
    "(setsid sh -c 'echo $$ >> children; sleep 1000; true' &) ; "
    "while [ $(wc -l < children) -lt 2 ]; do sleep 0.01; done; echo ready > ready; ";

TEST_F(AgentCrash, LeavesNothingInSessionsOfItsOwn) {
  write_file(root_ / "work/children", "");
  auto request = request_of(1, std::string(kInOwnSessions) + "wait", 1);
  request.env["MUSTER_ATTEMPT_FOLDER"] = folder(1).string();
  must_launch(request);
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/ready") == 1; }));
  ::kill(static_cast<pid_t>(agent_of(1)), SIGKILL);
  ASSERT_TRUE(facts_.wait_for(1));
  EXPECT_EQ(facts_.of<core::AttemptGone>().size(), 1u);
  std::istringstream children(read_file(root_ / "work/children"));
  for (std::int64_t child = 0; children >> child;) EXPECT_FALSE(is_alive(child)) << "beside the next attempt";
}

TEST_F(AgentCrash, NoCrashAndTheLastEndIsToldWhenNothingIsLeftInSessionsOfItsOwn) {
  write_file(root_ / "work/children", "");
  must_launch(1, std::string(kInOwnSessions) + "kill -9 $$");
  ASSERT_TRUE(facts_.exit_of(0));
  std::istringstream children(read_file(root_ / "work/children"));
  for (std::int64_t child = 0; children >> child;) EXPECT_FALSE(is_alive(child)) << "beside the next attempt";
}

TEST_F(AgentCrash, NoCrashAndTheLastEndWaitsForAProcessThatDoesNotEndAndTheLogTellsIt) {
  write_file(root_ / "stuck_process", "");
  restart_controller(::test::built_program("crashing_agent"));
  must_launch(1, "[ $RANK = 0 ] && exit 3; while [ ! -e leave ]; do sleep 0.01; done", 2);
  ASSERT_TRUE(facts_.exit_of(0)) << "the end of a rank is told while others run";
  write_file(root_ / "work/leave", "");
  const auto file = log(1, 1);
  ASSERT_TRUE(eventually([&] { return read_file(file).find("process 12 (stuck)") != std::string::npos; }));
  EXPECT_EQ(facts_.all().size(), 1u) << "the next attempt would run beside it";
  std::filesystem::remove(root_ / "stuck_process");
  ASSERT_TRUE(facts_.exit_of(1));
  EXPECT_EQ(read_file(file),
            "muster-agent: process 12 (stuck) that the ranks left behind does not end by SIGKILL; the end of the "
            "attempt waits for it\n");
}

// Reports that the controller is still taking hold the end back, too.
TEST_F(AgentCrash, NoCrashAndAnAgentThatHoldsTheLastEndBackIsNotKilled) {
  look_every_ = 200ms;
  write_file(root_ / "stuck_process", "");
  restart_controller(::test::built_program("crashing_agent"));
  must_launch(1, "exit 3");
  const auto until = SteadyClock::now() + 3 * executors::local::Follower::kRoundsWithoutRanks * look_every_;
  ASSERT_TRUE(eventually([&] { return SteadyClock::now() >= until; }));
  EXPECT_TRUE(facts_.all().empty());
  EXPECT_TRUE(is_alive(agent_of(1)));
  std::filesystem::remove(root_ / "stuck_process");
  const auto exited = facts_.exit_of(0);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->exit.code, 3);
  EXPECT_TRUE(facts_.of<core::AttemptGone>().empty());
}

TEST_F(AgentCrash, NoCrashAndARankWhoseEndIsHeldBackIsNotCalledGone) {
  write_file(root_ / "stuck_process", "");
  restart_controller(::test::built_program("crashing_agent"));
  const auto rank = must_launch(1, "exit 3").pids.at(0);
  ASSERT_TRUE(eventually([&] { return !is_alive(rank); }));
  EXPECT_EQ(executor_->vouch({1, 1}, 0), executors::Vouch::kEnded);
  ::kill(static_cast<pid_t>(agent_of(1)), SIGKILL);
  EXPECT_TRUE(eventually([&] { return executor_->vouch({1, 1}, 0) == executors::Vouch::kGone; }));
}

TEST_F(AgentCrash, WhileNobodyFollowsIsFoundOutByTheNextController) {
  const auto launched = must_launch(1, kStaysAndCounts, 2);
  end_controller();
  ::kill(static_cast<pid_t>(agent_of(1)), SIGKILL);
  for (const auto pid : launched.pids) {
    EXPECT_TRUE(eventually([&] { return !is_alive(pid); })) << "the kernel sees to it";
  }
  restart_controller();
  core::Attempt attempt;
  attempt.handle = launched.handle;
  executor_->adopt({1, 1}, attempt);
  ASSERT_TRUE(facts_.wait_for(1));
  EXPECT_EQ(facts_.of<core::AttemptGone>().size(), 1u);
}

TEST_F(AgentCrash, IsNotCausedByTheSignalsOfAShutdown) {
  must_launch(1, kStaysAndCounts, 2);
  const auto agent = static_cast<pid_t>(agent_of(1));
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::kill(agent, number);
  stop({1, 1}, {0ms});
  ASSERT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
  EXPECT_TRUE(facts_.of<core::AttemptGone>().empty());
}

TEST_F(AgentCrash, ASecondAgentRefuses) {
  const auto launched = must_launch(1, kStaysAndCounts, 2);
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/starts") == 2; }));
  const auto command = ::test::built_program("muster-agent") + " --local " + folder(1).string() + " 2>&1 | cat > " +
                       (root_ / "said").string();
  ASSERT_EQ(run_program({"/bin/sh", "-c", command}), 0);  // cat ends when the agent in the background has
  EXPECT_EQ(read_file(root_ / "said"), "muster-agent: another muster-agent, or musterd, holds the attempt's lock\n");
  stop({1, 1}, {0ms});
  ASSERT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
  ASSERT_TRUE(eventually([&] { return status(1).ended; }));
  ASSERT_TRUE(eventually([&] { return !is_alive(launched.pids.at(0)); }));
  ASSERT_EQ(run_program({"/bin/sh", "-c", command}), 0);
  EXPECT_THAT(read_file(root_ / "said"), testing::HasSubstr("muster-agent: "));
  EXPECT_EQ(count_lines(root_ / "work/starts"), 2u);
}

}  // namespace test
