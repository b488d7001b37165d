#include "controller/executors/local/follower.h"
#include "tests/controller/executors/local/world.h"

// Goal: a stop asks once, waits for the grace, then ends everything.
// Method: real processes that obey, and such that ignore, SIGTERM.
namespace test {

class Stop : public World {
 protected:
  /// Launches and waits until every rank has written its line into `ready`.
  core::AttemptLaunched launch_ready(core::JobId job, const std::string& script, std::size_t ranks = 1) {
    const auto launched = must_launch(job, script, ranks);
    EXPECT_TRUE(eventually([&] { return count_lines(root_ / "work/ready") == ranks; }));
    return launched;
  }
};

constexpr const char* kIgnoresTerm = "trap '' TERM; echo ready >> ready; while :; do sleep 0.05; done";
constexpr const char* kCountsTerms =
    "trap 'echo term >> terms' TERM; echo ready >> ready; while :; do sleep 0.05; done";

TEST_F(Stop, TermFirstThenKillAfterTheGrace) {
  launch_ready(1,
               std::string("[ $RANK = 0 ] && trap 'exit 99' TERM && echo ready >> ready && ") +
                   "while :; do sleep 0.05; done; " + kIgnoresTerm,
               2);
  constexpr auto kGrace = 3s;  // long beside whatever a busy machine keeps a shell waiting
  const auto before = SteadyClock::now();
  stop({1, 1}, {kGrace});
  EXPECT_LT(SteadyClock::now() - before, kGrace / 3) << "stop() returns at once";
  const auto obedient = facts_.exit_of(0);
  EXPECT_LT(SteadyClock::now() - before, kGrace);
  const auto stubborn = facts_.exit_of(1);
  ASSERT_TRUE(obedient && stubborn);
  EXPECT_GE(SteadyClock::now() - before, kGrace);
  EXPECT_EQ(obedient->exit, (core::ExitStatus{99, 0}));
  EXPECT_EQ(stubborn->exit, (core::ExitStatus{0, SIGKILL}));
  EXPECT_FALSE(stubborn->out_of_memory);
}

TEST_F(Stop, ALaterStopMayShortenTheGraceAndDoesNotAskTwice) {
  launch_ready(1, kCountsTerms);
  stop({1, 1}, {1h});
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/terms") == 1; }));
  stop({1, 1}, {300ms});
  stop({1, 1}, {2h});
  ASSERT_TRUE(facts_.exit_of(0));
  EXPECT_EQ(count_lines(root_ / "work/terms"), 1u) << "a second SIGTERM makes a rank leave without saving";
}

TEST_F(Stop, AFrozenRankIsKilledToo) {
  const auto launched = launch_ready(1, kIgnoresTerm);
  ::kill(static_cast<pid_t>(launched.pids.at(0)), SIGSTOP);
  stop({1, 1}, {0ms});
  ASSERT_TRUE(facts_.exit_of(0));
}

// The rank finds it the moment the signal arrives.
TEST_F(Stop, EveryRankFindsWhyItIsAskedToLeave) {
  launch_ready(
      1,
      "trap 'cat $MUSTER_STOP > stop-$RANK; echo done >> told' TERM; echo ready >> ready; while [ ! -e leave ]; do "
      "sleep 0.05; done; cat $MUSTER_STOP > stop-$RANK; exit 99",
      2);
  stop({1, 1}, {60s, true, "preempted"});
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/told") == 2; }));
  stop({1, 1}, {50s, false, "cancelled"});
  write_file(root_ / "work/leave", "");
  ASSERT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
  for (const char* file : {"work/stop-0", "work/stop-1"}) {
    EXPECT_THAT(read_file(root_ / file),
                testing::MatchesRegex(R"(\{"why":"preempted","save":true,"deadline":[0-9]{10}\.[0-9]{3}\}.)"))
        << "the first stop's";
  }
}

// The signal would reach its data loaders, too, and end them before it has saved.
TEST_F(Stop, AProgramThatLooksForTheFileByItselfGetsNoSignal) {
  launch_ready(1,
               "[ $RANK = 0 ] && touch $MUSTER_STOP.asked; trap 'echo term-$RANK >> terms; exit 98' TERM; "
               "echo ready >> ready; while [ ! -e $MUSTER_STOP ] || [ $RANK = 1 ]; do sleep 0.02; done; exit 99",
               2);
  stop({1, 1}, {60s, true, "requeued"});
  ASSERT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
  EXPECT_EQ(facts_.exit_of(0)->exit.code, 99);
  EXPECT_EQ(facts_.exit_of(1)->exit.code, 98);
  EXPECT_EQ(read_file(root_ / "work/terms"), "term-1\n");
}

TEST_F(Stop, ASurvivorIsToldNotToSave) {
  launch_ready(1, "trap 'cat $MUSTER_STOP > stop; exit 1' TERM; echo ready >> ready; while :; do sleep 0.05; done");
  stop({1, 1}, {2s, false, "peer_failed"});
  ASSERT_TRUE(facts_.exit_of(0));
  EXPECT_THAT(read_file(root_ / "work/stop"), testing::HasSubstr(R"("why":"peer_failed","save":false,)"));
}

TEST_F(Stop, WithoutAReasonNothingIsWritten) {
  launch_ready(1, "trap 'ls $MUSTER_STOP > stop; exit 1' TERM; echo ready >> ready; while :; do sleep 0.05; done");
  stop({1, 1}, {2s});
  ASSERT_TRUE(facts_.exit_of(0));
  EXPECT_EQ(read_file(root_ / "work/stop"), "");
}

TEST_F(Stop, ReachesTheWholeProcessGroupOfARank) {
  launch_ready(1,
               "trap 'wait; exit 0' TERM; sh -c 'trap \"echo child >> terms; exit\" TERM; echo ready >> ready; "
               "while :; do sleep 0.05; done' & while :; do sleep 0.05; done");
  stop({1, 1}, {5s});
  ASSERT_TRUE(facts_.exit_of(0));
  EXPECT_EQ(count_lines(root_ / "work/terms"), 1u);
}

TEST_F(Stop, OfWhatWasNeverLaunchedOrIsLongOverIsANoOp) {
  stop({42, 1}, {0ms});
  must_launch(1, "exit 0");
  ASSERT_TRUE(facts_.exit_of(0));
  ASSERT_TRUE(eventually([&] { return status(1).ended; }));
  restart_controller();
  stop({1, 1}, {0ms});
  stop({42, 1}, {0ms});
  // Facts come in order: when those of another attempt are there, anything of these would be too.
  must_launch(2, "exit 0");
  ASSERT_TRUE(facts_.wait_for(2));
  end_controller();
  EXPECT_EQ(facts_.all().size(), 2u);
}

TEST_F(Stop, ByAControllerThatHasNotAdoptedYet) {
  launch_ready(1, kIgnoresTerm);
  restart_controller();
  stop({1, 1}, {0ms});
  const auto exited = facts_.exit_of(0);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->exit.signal, SIGKILL);
}

TEST_F(Stop, IsPassedOnWhenTheAgentCanReachTheControllerAgain) {
  const auto launched = launch_ready(1, kIgnoresTerm);
  end_controller();
  desk_.go_away();
  restart_controller();
  core::Attempt attempt;
  attempt.handle = launched.handle;
  executor_->adopt({1, 1}, attempt);
  stop({1, 1}, {0ms});
  // The thread that looks at stops tells this, too, so it has looked at the stop, in vain.
  must_launch(2, "exit 0");
  ASSERT_TRUE(facts_.wait_for(1));
  EXPECT_TRUE(is_alive(launched.pids.at(0)));
  desk_.come_back();
  ASSERT_TRUE(facts_.wait_for(2));
  EXPECT_FALSE(is_alive(launched.pids.at(0)));
}

TEST_F(Stop, DoesNotDependOnAnAgentThatStandsStill) {
  look_every_ = 100ms;
  restart_controller();
  const auto launched = launch_ready(1, kIgnoresTerm, 2);
  const auto agent = agent_of(1);
  ::kill(static_cast<pid_t>(agent), SIGSTOP);
  stop({1, 1}, {300ms});
  ASSERT_TRUE(facts_.wait_for(1));
  const auto gone = facts_.of<core::AttemptGone>();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_THAT(gone[0].reason, testing::StartsWith("its agent did nothing any more and was killed"));
  for (const auto pid : launched.pids) EXPECT_FALSE(is_alive(pid));
  EXPECT_FALSE(is_alive(agent));
}

TEST_F(Stop, OfRanksThatAreGoneIsNotNeededForTheirEndToBeKnown) {
  look_every_ = 100ms;
  restart_controller();
  const auto launched = launch_ready(1, kIgnoresTerm, 2);
  ::kill(static_cast<pid_t>(agent_of(1)), SIGSTOP);
  for (const auto pid : launched.pids) ::kill(static_cast<pid_t>(pid), SIGKILL);
  ASSERT_TRUE(facts_.wait_for(1));
  EXPECT_EQ(facts_.of<core::AttemptGone>().size(), 1u);
}

TEST_F(Stop, AnAgentThatStandsStillIsLeftAloneWhileItsRanksRun) {
  look_every_ = 20ms;
  restart_controller();
  const auto launched = launch_ready(1, kIgnoresTerm);
  const auto agent = static_cast<pid_t>(agent_of(1));
  ::kill(agent, SIGSTOP);
  // The thread that looks after it does much else meanwhile, so it has looked often enough.
  const auto rounds = 3 * executors::local::Follower::kRoundsWithoutRanks;
  const auto until = SteadyClock::now() + rounds * look_every_;
  ASSERT_TRUE(eventually([&] { return SteadyClock::now() >= until; }));
  EXPECT_TRUE(is_alive(launched.pids.at(0)));
  ::kill(agent, SIGCONT);
  // The end is asked for by a controller that looks as rarely as usual: the one before takes an agent for stuck
  // that has not killed within 40 ms.
  look_every_ = 5s;
  restart_controller();
  core::Attempt attempt;
  attempt.handle = launched.handle;
  executor_->adopt({1, 1}, attempt);
  stop({1, 1}, {0ms});
  ASSERT_TRUE(facts_.exit_of(0));
}

// The ranks have obeyed, and the last end waits for a process that SIGKILL does not end.
TEST_F(Stop, AnAgentThatHoldsTheLastEndBackAfterAStopIsNotKilled) {
  look_every_ = 100ms;
  write_file(root_ / "stuck_process", "");
  restart_controller(::test::built_program("crashing_agent"));
  launch_ready(1, "trap 'exit 4' TERM; echo ready >> ready; while :; do sleep 0.05; done");
  stop({1, 1}, {0ms, true, "cancelled"});
  const auto file = log(1, 0);
  ASSERT_TRUE(eventually([&] { return read_file(file).find("process 12 (stuck)") != std::string::npos; }));
  const auto until = SteadyClock::now() + 3 * executors::local::Follower::kRoundsUnheard * look_every_;
  ASSERT_TRUE(eventually([&] { return SteadyClock::now() >= until; }));
  EXPECT_TRUE(facts_.all().empty());
  std::filesystem::remove(root_ / "stuck_process");
  ASSERT_TRUE(facts_.exit_of(0));
  EXPECT_TRUE(facts_.of<core::AttemptGone>().empty());
}

TEST_F(Stop, GoesOnWhenTheControllerIsKilledMeanwhile) {
  launch_ready(1, kCountsTerms);
  stop({1, 1}, {2s});
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/terms") == 1; }));
  end_controller();
  EXPECT_TRUE(eventually([&] { return status(1).ended; }));
}

}  // namespace test
