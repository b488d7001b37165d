#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>

#include "base/process_table.h"
#include "tests/controller/executors/local/world.h"
#include "tests/places.h"

// Goal: what ranks do is told as it is, at once.
// Method: real processes; shell scripts as ranks.
namespace test {

class RankFacts : public World {};

TEST_F(RankFacts, ExitCodesAndSignalsAreTold) {
  must_launch(1, "[ $RANK = 0 ] && exit 7; kill -SEGV $$", 2);
  const auto first = facts_.exit_of(0);
  const auto second = facts_.exit_of(1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->exit, (core::ExitStatus{7, 0}));
  EXPECT_EQ(second->exit, (core::ExitStatus{0, SIGSEGV}));
  EXPECT_FALSE(second->out_of_memory);
  EXPECT_EQ(first->attempt, 1u);
}

TEST_F(RankFacts, TheProgramsOwnErrorIsToldAndKept) {
  must_launch(1,
              "[ $RANK = 0 ] && echo '{\"message\": {\"message\": \"ValueError: bad batch\"}}' > "
              "$TORCHELASTIC_ERROR_FILE && exit 1; echo step 1; echo 'RuntimeError: CUDA error: it broke' >&2; exit 3",
              2);
  const auto first = facts_.exit_of(0);
  const auto second = facts_.exit_of(1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->error, "ValueError: bad batch");
  EXPECT_EQ(second->error, "RuntimeError: CUDA error: it broke");
  EXPECT_EQ(status(1).exits.at(1).error, "RuntimeError: CUDA error: it broke") << "for a controller that was away";
}

TEST_F(RankFacts, OfOneThatWasKilledOrIsDoneTheLogIsNotSearchedForAnError) {
  must_launch(1, "echo 'ValueError: caught' >&2; [ $RANK = 0 ] && exit 0; kill -KILL $$", 2);
  const auto done = facts_.exit_of(0);
  const auto killed = facts_.exit_of(1);
  ASSERT_TRUE(done && killed);
  EXPECT_EQ(done->error, "");
  EXPECT_EQ(killed->error, "");
}

TEST_F(RankFacts, OfOneThatWasAskedToLeaveNobodyAsksWhyItDid) {
  must_launch(
      1, "trap 'echo \"ValueError: interrupted\" >&2; exit 1' TERM; echo ready >> ready; while :; do sleep 0.05; done",
      1);
  ASSERT_TRUE(eventually([&] { return read_file(root_ / "work/ready") == "ready\n"; }));
  stop({1, 1}, {60s, true, "preempted"});
  const auto left = facts_.exit_of(0);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->exit, (core::ExitStatus{1, 0}));
  EXPECT_EQ(left->error, "");
}

// The stopped rank may have failed first, and be slow to end. A rank that only lost its connection is not the cause.
TEST_F(RankFacts, OneThatIsStoppedForAnotherRanksFailureTellsTheErrorThatItClosesWith) {
  must_launch(1,
              "echo 'Traceback (most recent call last):'; "
              "[ $RANK = 0 ] && echo 'ConnectionResetError: [Errno 104] Connection reset by peer' || "
              "echo 'ValueError: bad batch'; "
              "echo $RANK >> ready; exec sleep 1000",
              2);
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/ready") == 2; }));
  stop({1, 1}, {2s, false, "peer_failed"});
  ASSERT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
  EXPECT_EQ(facts_.exit_of(0)->error, "");
  EXPECT_EQ(facts_.exit_of(1)->error, "ValueError: bad batch");
  EXPECT_EQ(facts_.exit_of(1)->exit.signal, SIGTERM);
}

// Hostile programs may put such things where their error is looked for.
TEST_F(RankFacts, WhatIsNoErrorFileHoldsNothingUp) {
  must_launch(
      1,
      "case $RANK in 0) mkfifo $TORCHELASTIC_ERROR_FILE;; 1) mkdir $TORCHELASTIC_ERROR_FILE;; 2) head -c "
      "3000000 /dev/zero > $TORCHELASTIC_ERROR_FILE;; esac; printf 'ValueError: \\377\\033[31mred\\001\n' >&2; exit 1",
      3);
  for (core::RankNumber rank = 0; rank < 3; ++rank) {
    const auto exited = facts_.exit_of(rank);
    ASSERT_TRUE(exited);
    EXPECT_EQ(exited->error, "ValueError: ?red") << rank;
  }
}

// Nobody looks meanwhile, so it is told.
TEST_F(RankFacts, AnExitIsKnownAtOnce) {
  look_every_ = 60s;
  restart_controller();
  const auto gate = root_ / "work/gate";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  must_launch(1, "[ $RANK = 0 ] && read word < gate && exit 3; exec sleep 1000", 2);
  std::ofstream open(gate);  // waits until the rank reads
  const auto before = SteadyClock::now();
  open << "go" << std::endl;
  ASSERT_TRUE(facts_.exit_of(0));
  EXPECT_LT(SteadyClock::now() - before, 3s);
}

TEST_F(RankFacts, AnExitIsToldWhileTheDiskTakesItsTimeForIt) {
  const auto gate = root_ / "work/gate";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  restart_controller(::test::built_program("crashing_agent"));
  must_launch(1, "[ $RANK = 1 ] && exit 0; read word < gate && exit 3", 2);
  std::ofstream open(gate);        // waits until the rank reads
  ASSERT_TRUE(facts_.exit_of(1));  // so somebody listens
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "flushes") == 3; })) << "started, running, this exit";
  write_file(root_ / "slow_disk", "");
  open << "go" << std::endl;
  const auto exited = facts_.exit_of(0);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->exit.code, 3);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(root_ / "slow_disk_waits"); }));
  EXPECT_TRUE(status(1).exits.contains(0)) << "the next controller reads it, should this agent die now";
  std::filesystem::remove(root_ / "slow_disk");
  EXPECT_TRUE(eventually([&] { return status(1).ended; }));
}

// Goal: a disk on which no write comes back holds up neither a rank's end nor a stop.
TEST_F(RankFacts, AnExitIsToldAndAStopObeyedWhileTheDiskStandsStill) {
  const auto gate = root_ / "work/gate";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  restart_controller(::test::built_program("crashing_agent"));
  must_launch(1, "[ $RANK = 1 ] && exit 0; [ $RANK = 2 ] && exec sleep 1000; read word < gate && exit 3", 3);
  std::ofstream open(gate);        // waits until the rank reads
  ASSERT_TRUE(facts_.exit_of(1));  // so somebody listens
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "flushes") == 3; })) << "started, running, this exit";
  write_file(root_ / "stuck_disk", "");
  open << "go" << std::endl;
  const auto exited = facts_.exit_of(0);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->exit.code, 3);
  EXPECT_TRUE(std::filesystem::exists(root_ / "stuck_disk_waits"));
  stop({1, 1}, {0ms});
  EXPECT_TRUE(facts_.exit_of(2));
  EXPECT_FALSE(status(1).exits.contains(0));
  std::filesystem::remove(root_ / "stuck_disk");
  EXPECT_TRUE(eventually([&] { return status(1).ended; }));
  EXPECT_EQ(status(1).exits.size(), 3U);
}

// The file is read when a controller comes back. The first to end is the culprit, whatever its number.
TEST_F(RankFacts, EndsThatAreReadFromTheFileComeInTheirOrder) {
  const auto launched = must_launch(1, "[ $RANK = 1 ] || while [ ! -e end ]; do sleep 0.01; done; exit 4$RANK", 3);
  end_controller();
  ASSERT_TRUE(eventually([&] { return status(1).exits.contains(1); }));
  write_file(root_ / "work/end", "");
  ASSERT_TRUE(eventually([&] { return status(1).ended; }));
  restart_controller();
  core::Attempt attempt;
  attempt.handle = launched.handle;
  executor_->adopt({1, 1}, attempt);
  ASSERT_TRUE(facts_.wait_for(3));
  EXPECT_EQ(facts_.of<core::RankExited>().at(0).rank, 1U);
}

TEST_F(RankFacts, AKillFromOutsideIsASignalAndNotOutOfMemory) {
  const auto launched = must_launch(1, "exec sleep 1000");
  ::kill(static_cast<pid_t>(launched.pids.at(0)), SIGKILL);
  const auto exited = facts_.exit_of(0);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->exit, (core::ExitStatus{0, SIGKILL}));
  EXPECT_FALSE(exited->out_of_memory);
}

TEST_F(RankFacts, EachRankIsToldOnce) {
  must_launch(1, "exit $RANK", 8);
  ASSERT_TRUE(facts_.wait_for(8));
  ASSERT_TRUE(eventually([&] { return status(1).ended; }));
  stop({1, 1}, {0ms});
  end_controller();
  EXPECT_EQ(facts_.all().size(), 8u);
}

TEST_F(RankFacts, ARankThatEndsDoesNotLeaveItsChildrenBehind) {
  must_launch(1, "sleep 1000 & echo $! > same; setsid sleep 1000 & echo $! > other; [ -s same ] && exit 0");
  ASSERT_TRUE(facts_.exit_of(0));
  ASSERT_TRUE(eventually([&] { return status(1).ended; }));
  EXPECT_FALSE(is_alive(std::stoll(read_file(root_ / "work/same"))));
  EXPECT_FALSE(is_alive(std::stoll(read_file(root_ / "work/other"))));
}

TEST_F(RankFacts, ChildrenOfAnEndedRankDieWhileOtherRanksRun) {
  must_launch(1, "[ $RANK = 1 ] && exec sleep 1000; sleep 1000 & echo $! > child; exit 0", 2);
  ASSERT_TRUE(facts_.exit_of(0));
  EXPECT_TRUE(eventually([&] { return !is_alive(std::stoll(read_file(root_ / "work/child"))); }));
  EXPECT_EQ(executor_->vouch({1, 1}, 1), executors::Vouch::kAlive);
}

TEST_F(RankFacts, VouchTellsStoppedFromAliveFromEndedFromGone) {
  const auto launched = must_launch(1, "exec sleep 1000", 2);
  const auto pid = static_cast<pid_t>(launched.pids.at(0));
  EXPECT_EQ(executor_->vouch({1, 1}, 0), executors::Vouch::kAlive);
  ::kill(pid, SIGSTOP);
  EXPECT_TRUE(eventually([&] { return executor_->vouch({1, 1}, 0) == executors::Vouch::kStopped; }));
  EXPECT_EQ(executor_->vouch({1, 1}, 1), executors::Vouch::kAlive);
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(eventually([&] { return executor_->vouch({1, 1}, 0) == executors::Vouch::kEnded; })) << "its agent tells";
  ::kill(static_cast<pid_t>(agent_of(1)), SIGKILL);
  EXPECT_TRUE(eventually([&] { return executor_->vouch({1, 1}, 0) == executors::Vouch::kGone; }));
  EXPECT_EQ(executor_->vouch({1, 1}, 2), executors::Vouch::kGone) << "no such rank";
  EXPECT_EQ(executor_->vouch({9, 1}, 0), executors::Vouch::kGone) << "no such attempt";
}

// It is asked about often: a disk that stands still must not keep the answer.
TEST_F(RankFacts, AVouchNeedsNoFileOnceItWasGiven) {
  must_launch(1, "exec sleep 1000");
  EXPECT_EQ(executor_->vouch({1, 1}, 0), executors::Vouch::kAlive);
  std::filesystem::rename(folder(1) / "status.jsonl", folder(1) / "elsewhere");
  EXPECT_EQ(executor_->vouch({1, 1}, 0), executors::Vouch::kAlive);
  std::filesystem::rename(folder(1) / "elsewhere", folder(1) / "status.jsonl");
}

TEST_F(RankFacts, ARankThatADebuggerHoldsIsVouchedFor) {
  const auto launched = must_launch(1, "exec sleep 1000");
  const auto pid = static_cast<pid_t>(launched.pids.at(0));
  if (::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) GTEST_SKIP() << "nobody may trace a process here";
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(pid, nullptr, __WALL), pid);
  EXPECT_EQ(base::read_stat(pid)->state, 't');
  EXPECT_EQ(executor_->vouch({1, 1}, 0), executors::Vouch::kAlive);
  ::ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
}

TEST_F(RankFacts, AVouchThatCannotBeGivenIsUnknown) {
  must_launch(1, "exec sleep 1000");
  std::ofstream(folder(1) / "status.jsonl", std::ios::app) << "no json\n";
  EXPECT_EQ(executor_->vouch({1, 1}, 0), executors::Vouch::kUnknown);
  std::filesystem::resize_file(folder(1) / "status.jsonl", std::filesystem::file_size(folder(1) / "status.jsonl") - 8);
  EXPECT_EQ(executor_->vouch({1, 1}, 0), executors::Vouch::kAlive);
}

}  // namespace test
