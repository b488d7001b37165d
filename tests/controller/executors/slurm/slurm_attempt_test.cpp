#include <signal.h>

#include "tests/controller/executors/slurm/follow.h"

namespace executors::on_slurm {
namespace {

using namespace testing;
using ::slurm::Time;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SlurmAttempt, TellsTheStartOnceWithEachRanksNode) {
  Following f({{7, 1}, 4, 2, false, false});
  f.slurm_says("PENDING", "Priority").slurm_says("CONFIGURING");
  EXPECT_THAT(f.facts(), IsEmpty()) << "its nodes may take minutes to boot";
  f.slurm_says("RUNNING").slurm_says("RUNNING");
  EXPECT_THAT(f.facts(), ElementsAre("started node1 node1 node2 node2"));
}

// Slurm is asked less often while everything is at rest.
TEST(SlurmAttempt, RestsInTheQueueAndWhileEachOfItsRanksIsHeard) {
  Following f;
  EXPECT_FALSE(f.attempt.is_at_rest(f.now)) << "Slurm has not been asked yet";
  f.slurm_says("PENDING", "Priority");
  EXPECT_TRUE(f.attempt.is_at_rest(f.now));
  f.slurm_says("RUNNING");
  EXPECT_FALSE(f.attempt.is_at_rest(f.now)) << "no rank is heard";
  f.task(0, running("node1"));
  EXPECT_FALSE(f.attempt.is_at_rest(f.now)) << "one rank is not heard";
  f.task(1, running("node2"));
  EXPECT_TRUE(f.attempt.is_at_rest(f.now));
  f.after(1s).task(0, running("node1")).after(1s);
  EXPECT_FALSE(f.attempt.is_at_rest(f.now)) << "rank 1 has not been heard for two seconds";
  f.task(1, running("node2"));
  EXPECT_TRUE(f.attempt.is_at_rest(f.now));
  f.task(1, exited(1));
  EXPECT_FALSE(f.attempt.is_at_rest(f.now)) << "Slurm may know why";
}

TEST(SlurmAttempt, KnowsForHowLongItRunsWithoutAWordOfItsTasks) {
  Following f;
  f.slurm_says("PENDING").after(60s);
  EXPECT_EQ(f.attempt.unheard_for(f.now), std::nullopt) << "it waits";
  f.slurm_says("RUNNING").after(20s);
  EXPECT_EQ(f.attempt.unheard_for(f.now), 20s);
  f.task(1, running("node2")).after(60s);
  EXPECT_EQ(f.attempt.unheard_for(f.now), std::nullopt) << "one was heard, and who is missed since is told otherwise";
}

// Its tasks are stopped with it, so Slurm alone can speak for them, and a moment longer than it says so.
TEST(SlurmAttempt, RanksOfASuspendedJobAreVouchedForBySlurm) {
  Following f;
  f.under_way().slurm_says("SUSPENDED");
  f.after(SlurmAttempt::kHeardWithin + 1ms);
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kSuspended);
  f.slurm_says("RUNNING");
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kSuspended) << "they are just waking";
  f.task(0, running());
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kAlive);
  f.after(SlurmAttempt::kWakesWithin);
  EXPECT_EQ(f.attempt.vouch(1, f.now), Vouch::kUnknown);
  EXPECT_THAT(f.facts(), IsEmpty());
}

TEST(SlurmAttempt, AJobStaysSuspendedForAsLongAsNoListingAnswers) {
  Following f;
  auto stopped = running();
  stopped.process = TaskReport::Process::kStopped;
  f.under_way().slurm_says("SUSPENDED").task(0, stopped);
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kSuspended) << "its task told of it before it was stopped itself";
  f.after(60s);
  for (const core::RankNumber rank : {0U, 1U}) EXPECT_EQ(f.attempt.vouch(rank, f.now), Vouch::kSuspended);
  f.slurm_says("RUNNING").after(SlurmAttempt::kWakesWithin - 1ms);
  EXPECT_EQ(f.attempt.vouch(1, f.now), Vouch::kSuspended) << "it has just been let go on";
  f.slurm_says("RUNNING").after(1ms);
  EXPECT_EQ(f.attempt.vouch(1, f.now), Vouch::kUnknown);
  EXPECT_THAT(f.facts(), IsEmpty());
}

// A state that a later Slurm has, or that it has for some reason of its own.
TEST(SlurmAttempt, AStateThatNobodyKnowsEndsNothing) {
  Following f;
  f.under_way();
  for (int listing = 0; listing < 100; ++listing) {
    f.after(SlurmAttempt::kMissingFor).task(0, running()).task(1, running()).slurm_says("EXPEDITING");
  }
  EXPECT_THAT(f.facts(), IsEmpty());
  EXPECT_FALSE(f.attempt.wants_cancel(f.now));
  EXPECT_FALSE(f.attempt.over());
  f.task(0, exited(0)).task(1, exited(0)).slurm_says("COMPLETED");
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 0", "rank 1 exit 0"));
}

TEST(SlurmAttempt, TellsACleanEndAtOnceAndIsOverWhenSlurmIs) {
  Following f;
  f.under_way().task(0, exited(0)).task(1, exited(0));
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 0", "rank 1 exit 0"));
  EXPECT_FALSE(f.attempt.over()) << "the Slurm job is there";
  f.slurm_says("COMPLETING").slurm_says("COMPLETED");
  EXPECT_TRUE(f.attempt.over());
  EXPECT_THAT(f.facts(), IsEmpty());
}

// A failure that comes with nothing from outside is the rank's own doing.
TEST(SlurmAttempt, TellsAFailureAsSoonAsTheOthersAreHeard) {
  for (const auto& report : {exited(1), exited(7), exited(0, SIGSEGV), exited(127)}) {
    Following f;
    f.under_way().task(1, report);
    EXPECT_THAT(f.facts(), IsEmpty());
    f.task(0, running());
    EXPECT_THAT(f.facts(), IsEmpty()) << "it may have been sent before";
    f.after(RankExits::kLateWord).task(0, running());
    EXPECT_EQ(f.facts().size(), 1U) << report.exit.code << " " << report.exit.signal;
  }
}

TEST(SlurmAttempt, TellsAtOnceWhatCannotBeAnothersDoing) {
  auto killed = exited(0, SIGSEGV);
  killed.out_of_memory = true;
  for (const auto& report : {exited(0), exited(93), exited(97), killed}) {
    Following f;
    f.under_way().task(1, report);
    EXPECT_EQ(f.facts().size(), 1U) << report.exit.code << " " << report.exit.signal;
  }
  Following alone({{7, 1}, 1, 1, false, false});
  alone.slurm_says("RUNNING").task(0, running()).task(0, exited(7));
  EXPECT_THAT(alone.facts(), ElementsAre("started node1", "rank 0 exit 7"));
}

// Slurm lists RUNNING: of a gang it tells only in the end that it ran out of memory.
TEST(SlurmAttempt, ARankThatTheKernelKilledForMemoryIsToldSo) {
  Following f;
  auto killed = exited(0, SIGKILL);
  killed.out_of_memory = true;
  f.under_way().task(1, killed);
  EXPECT_THAT(f.facts(), IsEmpty()) << "Slurm may have done it";
  f.slurm_says("RUNNING");
  const auto facts = f.attempt.take_facts();
  ASSERT_EQ(facts.size(), 1U) << "no other rank's end can be behind it";
  EXPECT_EQ(words(facts[0]), "rank 1 signal 9");
  EXPECT_TRUE(std::get<core::RankExited>(facts[0]).out_of_memory);
}

// A rank was killed; another lost its connection to it and was quicker to say so.
TEST(SlurmAttempt, TheRankThatWasKilledIsToldBeforeThoseThatFailedBecauseOfIt) {
  Following f({{7, 1}, 3, 1, false, false});
  f.job.node_list = "node[1-3]";
  f.slurm_says("RUNNING").task(0, running()).task(1, running()).task(2, running());
  f.facts();
  f.task(0, exited(1)).task(1, exited(1)).task(2, exited(0, SIGKILL));
  EXPECT_THAT(f.facts(), IsEmpty()) << "Slurm has not been asked";
  f.slurm_says("RUNNING");
  EXPECT_THAT(f.facts(), ElementsAre("rank 2 signal 9", "rank 0 exit 1", "rank 1 exit 1"));
}

TaskReport failed_at(std::int64_t ms) {
  auto report = exited(1);
  report.ended_at = core::Millis(ms);
  return report;
}

// Rank 1 failed by itself; rank 0 lost its connection to it, and its end came through first.
TEST(SlurmAttempt, OfPlainFailuresTheOneThatEndedFirstByItsNodesClockIsToldFirst) {
  Following f;
  f.under_way().task(0, failed_at(5020)).task(1, failed_at(5000));
  EXPECT_THAT(f.facts(), ElementsAre("rank 1 exit 1", "rank 0 exit 1"));
}

TEST(SlurmAttempt, ClocksThatDisagreeAreNotCompared) {
  Following f;
  f.under_way().task(0, failed_at(65'000)).task(1, failed_at(5000));
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 1", "rank 1 exit 1"));
  Following unknown;
  unknown.under_way().task(0, exited(1)).task(1, failed_at(5000));
  EXPECT_THAT(unknown.facts(), ElementsAre("rank 0 exit 1", "rank 1 exit 1")) << "an older muster-agent";
}

TEST(SlurmAttempt, TheRankThatSaidFirstThatItLeavesIsToldFirstWhateverTheClocksSay) {
  Following f;
  f.under_way();
  f.attempt.failing(1);
  f.attempt.failing(0);
  f.attempt.failing(1);
  f.task(0, failed_at(5000)).task(1, failed_at(5020));
  EXPECT_THAT(f.facts(), ElementsAre("rank 1 exit 1", "rank 0 exit 1"));
  Following half;
  half.under_way();
  half.attempt.failing(0);
  half.task(0, failed_at(5020)).task(1, failed_at(5000));
  EXPECT_THAT(half.facts(), ElementsAre("rank 1 exit 1", "rank 0 exit 1")) << "one that could not say it any more";
}

// The controller was away: all it has is what the tasks wrote down.
TEST(SlurmAttempt, EndsThatAreReadFromFilesAreToldInTheirOrder) {
  Following f({{7, 1}, 2, 1, true, false});
  f.job.node_list = "node[1-2]";
  f.slurm_says("FAILED");
  f.facts();
  const auto late = failed_at(95'000), early = failed_at(5000);
  f.attempt.file(0, &late, f.now);
  f.attempt.file(1, &early, f.now);
  f.after(50ms);
  EXPECT_THAT(f.facts(), ElementsAre("rank 1 exit 1", "rank 0 exit 1"));
}

// Its node is gone: rank 1 will never be heard again, and liveness finds that out.
TEST(SlurmAttempt, AFailureWaitsForARankThatIsNotHeardUntilTheAttemptIsStopped) {
  Following f;
  f.under_way().task(0, exited(1)).slurm_says("RUNNING").after(2500ms);
  EXPECT_THAT(f.facts(), IsEmpty());
  f.attempt.stop({2s, false}, f.now);
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 1"));
  Following nobody_finds_out;
  nobody_finds_out.under_way().task(0, exited(1)).after(SlurmAttempt::kHoldMost + 100ms);
  EXPECT_THAT(nobody_finds_out.facts(), ElementsAre("rank 0 exit 1"));
}

// The final state of Slurm and what it means, with ranks that were ended with SIGTERM just before.
TEST(SlurmAttempt, HoldsAnExitThatMayBeSlurmsUntilItHasSaidWhy) {
  const std::map<std::string, std::string> stories{
      {"PREEMPTED", "stopping preempted"},   {"TIMEOUT", "stopping timed_out"},
      {"DEADLINE", "stopping timed_out"},    {"NODE_FAIL", "stopping node_failed"},
      {"BOOT_FAIL", "stopping node_failed"}, {"OUT_OF_MEMORY", "stopping out_of_memory"},
      {"CANCELLED", "stopping cancelled"},   {"REVOKED", "stopping controller_lost"},
  };
  for (const auto& [state, told] : stories) {
    SCOPED_TRACE(state);
    Following f;
    f.under_way().task(0, exited(99, 0, {SIGTERM})).task(1, exited(0, SIGTERM, {SIGTERM}));
    EXPECT_THAT(f.facts(), IsEmpty());
    EXPECT_TRUE(f.attempt.wants_listing());
    f.slurm_says(state);
    EXPECT_THAT(f.facts(), ElementsAre(told, "rank 1 signal 15", "rank 0 exit 99"));
    EXPECT_TRUE(f.attempt.over());
  }
}

TEST(SlurmAttempt, LetsTheRanksSpeakWhereSlurmHasNothingToSay) {
  for (const std::string state : {"COMPLETED", "FAILED"}) {
    Following f;
    f.under_way().task(0, exited(0, SIGKILL)).task(1, exited(0, SIGKILL));
    EXPECT_THAT(f.facts(), IsEmpty());
    f.slurm_says(state);
    EXPECT_THAT(f.facts(), ElementsAre("rank 0 signal 9", "rank 1 signal 9")) << state;
  }
}

TEST(SlurmAttempt, AListingAskedForAfterTheExitReleasesItAnEarlierOneDoesNot) {
  Following f;
  f.under_way().task(1, exited(0, SIGKILL));
  const auto exited_at = f.now;
  f.after(RankExits::kLateWord).task(0, running());
  f.job.state = ::slurm::parse_job_state("RUNNING");
  f.attempt.observe({&f.job, {}, exited_at - 1ms, f.now, f.wall()});
  EXPECT_THAT(f.facts(), IsEmpty()) << "Slurm may not have known then";
  f.slurm_says("RUNNING");
  EXPECT_THAT(f.facts(), ElementsAre("rank 1 signal 9"));
}

// squeue fails, or hangs for longer than anybody would wait: what Slurm does meanwhile is known when it answers.
TEST(SlurmAttempt, AnExitThatMayBeSlurmsWaitsForAnUnreachableSlurm) {
  constexpr auto outage = 5min;
  Following victim;
  victim.under_way().task(0, exited(0, 0, {SIGTERM})).task(1, exited(0, 0, {SIGTERM})).after(outage);
  EXPECT_THAT(victim.facts(), IsEmpty());
  victim.job.preempted = Time(1s);
  victim.slurm_says("COMPLETED");
  EXPECT_THAT(victim.facts(), ElementsAre("stopping preempted", "rank 0 exit 0", "rank 1 exit 0"));

  Following cancelled;
  cancelled.under_way().task(0, exited(0, SIGTERM, {SIGTERM})).task(1, exited(0, SIGKILL)).after(outage);
  EXPECT_THAT(cancelled.facts(), IsEmpty());
  cancelled.slurm_says("CANCELLED");
  EXPECT_THAT(cancelled.facts(), ElementsAre("stopping cancelled", "rank 0 signal 15", "rank 1 signal 9"));

  Following by_itself;
  by_itself.under_way().task(1, exited(0, SIGKILL)).after(outage).slurm_says("RUNNING");
  EXPECT_THAT(by_itself.facts(), ElementsAre("rank 1 signal 9"));
}

// Slurm ended one rank, and the other lost its connection to it before it was told to leave.
TEST(SlurmAttempt, AFailureWaitsWithAnExitThatMayBeSlurms) {
  Following f;
  f.under_way().task(1, exited(0, SIGKILL)).task(0, exited(1)).after(SlurmAttempt::kHoldMost + 1s);
  EXPECT_THAT(f.facts(), IsEmpty());
  f.slurm_says("NODE_FAIL");
  EXPECT_THAT(f.facts(), ElementsAre("stopping node_failed", "rank 1 signal 9", "rank 0 exit 1"));
  Following alone;
  alone.under_way().task(1, exited(0, SIGKILL)).task(0, exited(93));
  EXPECT_THAT(alone.facts(), ElementsAre("rank 0 exit 93")) << "nothing can be behind it";
}

TEST(SlurmAttempt, WhatSlurmDoesNotExplainIsToldInTheEndAndIsNoSuccessIfItWasToldToLeave) {
  for (const auto& [report, told] : std::vector<std::pair<TaskReport, std::vector<std::string>>>{
           {exited(0, 0, {SIGTERM}), {"stopping preempted", "rank 1 exit 0"}},
           {exited(0, SIGTERM, {SIGTERM}), {"stopping preempted", "rank 1 signal 15"}},
           {exited(0, SIGKILL), {"rank 1 signal 9"}}}) {
    SCOPED_TRACE(told.back());
    Following silent;
    silent.under_way().task(1, report).after(SlurmAttempt::kHoldUnanswered);
    EXPECT_EQ(silent.facts(), told) << "Slurm cannot be asked";
    Following forgotten;
    forgotten.under_way().task(1, report).after(SlurmAttempt::kHoldMost).slurm_lists_nothing();
    EXPECT_THAT(forgotten.facts(), IsEmpty()) << "accounting may know";
    forgotten.slurm_lists_nothing();
    EXPECT_EQ(forgotten.facts(), told) << "Slurm knows nothing of it";
    Following stuck;
    stuck.under_way().task(1, report).slurm_says("COMPLETING").after(SlurmAttempt::kHoldWhileEnding);
    EXPECT_THAT(stuck.facts(), IsEmpty());
    stuck.slurm_says("COMPLETING");
    EXPECT_EQ(stuck.facts(), told) << "Slurm does not come to an end";
  }
}

// slurmctld was away for longer than it remembers what has ended.
TEST(SlurmAttempt, AccountingExplainsAnExitThatNoListingTellsOfAnyMore) {
  Following f;
  f.accounting = true;
  f.under_way().task(0, exited(0, 0, {SIGTERM})).task(1, exited(0, 0, {SIGTERM})).after(5min).slurm_lists_nothing();
  EXPECT_THAT(f.facts(), IsEmpty());
  f.slurm_remembers("CANCELLED by ada");
  EXPECT_THAT(f.facts(), ElementsAre("stopping cancelled", "rank 0 exit 0", "rank 1 exit 0"));
  Following silent;
  silent.accounting = true;
  silent.under_way().task(1, exited(0, 0, {SIGTERM})).after(5min).slurm_lists_nothing();
  silent.after(SlurmAttempt::kHistoryPatience).slurm_lists_nothing();
  EXPECT_THAT(silent.facts(), ElementsAre("stopping preempted", "rank 1 exit 0"));
}

TEST(SlurmAttempt, ACancelIsNotKeptByAnExitThatWaitsForSlurm) {
  Following f;
  f.under_way().task(0, exited(0, 0, {SIGTERM})).task(1, exited(0, 0, {SIGTERM})).after(30s);
  f.attempt.stop({2s, true}, f.now);
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 0", "rank 1 exit 0"));
}

// It was told to leave and did not: killed with its task, as it seems, while squeue fails.
TEST(SlurmAttempt, ARankThatWasToldToLeaveIsNotCalledSilentWhileSlurmCannotBeAsked) {
  Following f;
  auto told = running();
  told.signals_seen = {SIGTERM};
  f.under_way().task(0, told).after(30s);
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kEnded);
  EXPECT_EQ(f.attempt.vouch(1, f.now), Vouch::kUnknown) << "nobody told it";
  f.slurm_says("RUNNING");
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kUnknown);
}

// One rank has saved and left; another uses all of its KillWait. Only the final state tells a cancel from anything
// else.
TEST(SlurmAttempt, WhileSlurmIsEndingTheJobNothingIsGuessed) {
  Following f;
  f.under_way().task(0, exited(99, 0, {SIGTERM})).slurm_says("COMPLETING").after(30s);
  EXPECT_THAT(f.facts(), IsEmpty());
  f.task(1, exited(0, SIGKILL, {SIGTERM})).slurm_says("CANCELLED");
  EXPECT_THAT(f.facts(), ElementsAre("stopping cancelled", "rank 1 signal 9", "rank 0 exit 99"));
}

// The partition's limit, one that an admin has changed, or the start of a job that nobody saw.
TEST(SlurmAttempt, RanksSaveBeforeALimitOfSlurmsOwn) {
  const auto running_until = [](Following& f, std::chrono::seconds left, std::optional<std::chrono::seconds> limit) {
    f.job.time_limit = limit;
    f.job.ends = std::chrono::floor<std::chrono::seconds>(f.wall()) + left;
    f.slurm_says("RUNNING");
  };
  Following f({{7, 1}, 2, 1, false, false, 10s});
  f.under_way();
  running_until(f, 40s, 60s);
  EXPECT_THAT(f.after(28s).facts(), IsEmpty());
  EXPECT_THAT(f.after(2s).facts(), ElementsAre("stopping timed_out save"));

  Following later({{7, 1}, 2, 1, false, false, 10s});
  later.under_way();
  running_until(later, 40s, 60s);
  running_until(later, 100s, 120s);
  EXPECT_THAT(later.after(60s).facts(), IsEmpty()) << "somebody has given it more";
  later.slurm_says("SUSPENDED").after(60s).slurm_lists_nothing();
  EXPECT_THAT(later.facts(), IsEmpty()) << "its time stands still";

  Following patient({{7, 1}, 2, 1, false, false, 50s});
  patient.under_way();
  running_until(patient, 60s, 60s);
  EXPECT_THAT(patient.after(28s).facts(), IsEmpty()) << "a save may take half the limit at most";
  EXPECT_THAT(patient.after(3s).facts(), ElementsAre("stopping timed_out save"));

  Following unlimited;
  unlimited.under_way();
  running_until(unlimited, 1s, std::nullopt);
  EXPECT_THAT(unlimited.after(10s).facts(), IsEmpty());
}

TEST(SlurmAttempt, WhatSlurmSaysWhileItIsEndingIsTakenAtOnce) {
  Following limit;
  limit.under_way().slurm_says("COMPLETING", "TimeLimit");
  EXPECT_THAT(limit.facts(), ElementsAre("stopping timed_out"));
  Following node;
  node.under_way().slurm_says("COMPLETING", "NodeDown");
  EXPECT_THAT(node.facts(), ElementsAre("stopping node_failed"));
  Following preempted;
  preempted.under_way();
  preempted.job.preempted = Time(1s);
  preempted.slurm_says("COMPLETING");
  EXPECT_THAT(preempted.facts(), ElementsAre("stopping preempted")) << "without grace there is nothing to save in";
  Following none;
  none.under_way().slurm_says("COMPLETING");
  EXPECT_THAT(none.facts(), IsEmpty());
}

TEST(SlurmAttempt, APreemptionIsToldInItsGracePeriodSoThatRanksSave) {
  Following f;
  f.under_way();
  f.job.preempted = Time(1s);
  f.slurm_says("RUNNING");
  EXPECT_THAT(f.facts(), ElementsAre("stopping preempted save"));
  f.task(0, exited(99, 0, {SIGTERM})).task(1, exited(99, 0, {SIGTERM}));
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 99", "rank 1 exit 99"));
  // Slurm calls it COMPLETED, and that is no matter.
  f.slurm_says("COMPLETED");
  EXPECT_TRUE(f.attempt.over());
}

TEST(SlurmAttempt, AVictimThatSlurmCallsCompletedWasPreempted) {
  for (const std::string state : {"COMPLETED", "FAILED", "PREEMPTED"}) {
    SCOPED_TRACE(state);
    Following f;
    f.under_way().task(0, exited(99, 0, {SIGTERM})).task(1, exited(99, 0, {SIGTERM}));
    f.job.preempted = Time(1s);
    f.slurm_says(state);
    EXPECT_THAT(f.facts(), ElementsAre("stopping preempted", "rank 0 exit 99", "rank 1 exit 99"));
  }
}

// The code alone would be a preemption, and cost its budget.
TEST(SlurmAttempt, ARankThatLeavesWith99WaitsForSlurmsWordToo) {
  Following f;
  f.under_way().task(0, exited(99, 0, {SIGTERM})).task(1, exited(99, 0, {SIGTERM}));
  EXPECT_THAT(f.facts(), IsEmpty());
  f.job.restarts = 1;
  f.slurm_says("COMPLETING");
  EXPECT_THAT(f.facts(), ElementsAre("stopping requeued save", "rank 0 exit 99", "rank 1 exit 99"));
}

// RequeueExit: nobody asked for it but the ranks, and their budget counts.
TEST(SlurmAttempt, ARunThatSlurmStartsAgainBecauseOfItsExitCodeEndedByItself) {
  for (const int code : {99, 1, 97}) {
    SCOPED_TRACE(code);
    Following f;
    f.under_way().task(0, exited(code)).task(1, exited(code)).slurm_waits_again(code);
    const auto text = " exit " + std::to_string(code);
    EXPECT_THAT(f.facts(), ElementsAre("rank 0" + text, "rank 1" + text));
    EXPECT_TRUE(f.attempt.ended());
    EXPECT_TRUE(f.attempt.wants_cancel(f.now)) << "its second run is nobody's";
    f.slurm_says("CANCELLED");
    EXPECT_THAT(f.facts(), IsEmpty());
    EXPECT_TRUE(f.attempt.over());
  }
}

// It had a grace period, and left sooner than anybody saw PreemptTime. `scontrol requeue` leaves no exit code.
TEST(SlurmAttempt, AVictimThatSavedFasterThanSlurmWasAskedWasPreempted) {
  Following f;
  f.under_way().task(0, exited(99, 0, {SIGTERM})).task(1, exited(99, 0, {SIGTERM})).slurm_waits_again(99);
  EXPECT_THAT(f.facts(), ElementsAre("stopping preempted", "rank 0 exit 99", "rank 1 exit 99"));
  Following requeued;
  requeued.under_way().task(0, exited(99, 0, {SIGTERM})).task(1, exited(99, 0, {SIGTERM}));
  requeued.job.restarts = 1;
  requeued.slurm_says("PENDING", "BeginTime");
  EXPECT_THAT(requeued.facts(), ElementsAre("stopping requeued save", "rank 0 exit 99", "rank 1 exit 99"));
}

// The controller was away, and so the task asked for the save; or nobody can tell any more.
TEST(SlurmAttempt, WhatWasRequeuedForItsExitCodeWhileNobodyLookedIsToldByItsFiles) {
  const std::vector<std::pair<std::vector<int>, std::string>> stories{
      {{SIGUSR2}, "stopping timed_out save"}, {{SIGTERM}, "stopping preempted"}, {{}, "rank 0 exit 99"}};
  for (const auto& [signals, first] : stories) {
    SCOPED_TRACE(first);
    Following f;
    f.slurm_waits_again(99);
    EXPECT_TRUE(f.attempt.wants_files(f.now));
    const auto saved = exited(99, 0, signals);
    f.attempt.file(0, &saved, f.now);
    f.attempt.file(1, &saved, f.now);
    f.after(50ms).slurm_says("CANCELLED");
    const auto facts = f.facts();
    ASSERT_FALSE(facts.empty());
    EXPECT_EQ(facts.front(), first);
    EXPECT_EQ(facts.back(), "rank 1 exit 99");
    EXPECT_TRUE(f.attempt.over());
  }
  Following nothing_left;
  nothing_left.slurm_waits_again(99).after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(nothing_left.facts(), ElementsAre("gone preempted"));
}

TEST(SlurmAttempt, ARequeueBySlurmEndsTheAttemptAndItsSecondRunIsCancelled) {
  Following f;
  f.under_way();
  f.job.restarts = 1;
  f.slurm_says("COMPLETING");
  EXPECT_THAT(f.facts(), ElementsAre("stopping requeued save"));
  EXPECT_FALSE(f.attempt.wants_cancel(f.now)) << "its ranks are saving";
  f.task(0, exited(99, 0, {SIGTERM})).task(1, exited(99, 0, {SIGTERM})).slurm_says("PENDING", "BeginTime");
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 99", "rank 1 exit 99"));
  EXPECT_TRUE(f.attempt.ended());
  EXPECT_TRUE(f.attempt.wants_cancel(f.now));
  f.attempt.cancel_sent(f.now);
  EXPECT_FALSE(f.attempt.wants_cancel(f.now));
  EXPECT_TRUE(f.attempt.wants_cancel(f.now + SlurmAttempt::kCancelAgain)) << "a slurmctld may forget it";
  f.slurm_says("CANCELLED");
  EXPECT_TRUE(f.attempt.over());
}

// Slurm forgets PreemptTime as soon as the job is pending again.
TEST(SlurmAttempt, APreemptionByRequeueIsRememberedAfterSlurmForgotIt) {
  Following f;
  f.under_way();
  f.job.restarts = 1;
  f.job.preempted = Time(1s);
  f.slurm_says("COMPLETING");
  EXPECT_THAT(f.facts(), ElementsAre("stopping preempted save"));
  f.job.preempted.reset();
  f.task(0, exited(99, 0, {SIGTERM})).task(1, exited(99, 0, {SIGTERM})).slurm_says("PENDING", "BeginTime");
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 99", "rank 1 exit 99"));
}

TEST(SlurmAttempt, ARequeueBecauseOfALostNodeIsANodeFailure) {
  for (const bool after_restart : {false, true}) {
    Following f({{7, 1}, 2, 1, after_restart, false});
    f.under_way();
    f.job.restarts = 1;
    f.down = {{"node2", "bad fan"}};
    f.job.node_list = "node1";  // it shrinks
    f.slurm_says("COMPLETING");
    EXPECT_THAT(f.facts(), ElementsAre("stopping node_failed")) << after_restart;
  }
}

TEST(SlurmAttempt, ANodeThatSlurmCallsDownIsNamedWithTheReasonThatAnAdminGave) {
  Following f;
  f.under_way();
  f.job.restarts = 1;
  f.down = {{"node2", "bad fan"}, {"node7", "another's"}};
  f.slurm_says("PENDING");
  EXPECT_THAT(f.reasons(), ElementsAre("Slurm says that node node2 is down (bad fan)"));
}

// It was down for a moment, and is back before anybody can ask.
TEST(SlurmAttempt, ARequeueNamesTheNodesThatItRanOn) {
  Following f({{7, 1}, 4, 2, false, false});
  f.slurm_says("RUNNING");
  f.job.restarts = 1;
  f.slurm_says("PENDING");
  EXPECT_THAT(f.reasons(), ElementsAre("requeued in Slurm (scontrol requeue, or by the cluster itself); it ran on "
                                       "node[1-2]"));
}

TEST(SlurmAttempt, SetupLinesThatEndTheScriptAreToldSo) {
  Following f;
  f.slurm_says("RUNNING").slurm_says("COMPLETED").after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(f.reasons(), ElementsAre("its setup lines ended the script before any rank was started (Slurm job 12 "
                                       "ended as COMPLETED)"));
}

// The first run was at its setup lines when slurmctld lost its state; the second found it begun, and left.
TEST(SlurmAttempt, ASecondRunThatLeftAtOnceIsNotCalledTheSetupLines) {
  Following f;
  f.slurm_says("RUNNING");
  EXPECT_FALSE(f.attempt.wants_script_word());
  f.slurm_says("COMPLETED");
  EXPECT_TRUE(f.attempt.wants_script_word());
  f.attempt.was_second_run();
  f.after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(f.facts(), ElementsAre("started node1 node2", "gone requeued"));
}

TEST(SlurmAttempt, WhatAListingMustShowIsKnownFromTheTimeOnThatItWasKnown) {
  Following f;
  const auto before = f.now;
  EXPECT_FALSE(f.attempt.must_be_listed(before - 1ms)) << "asked for before sbatch had returned";
  EXPECT_TRUE(f.attempt.must_be_listed(f.now));
  EXPECT_FALSE(f.attempt.had_started(f.now + 1ms));
  f.after(1s).task(0, running());
  EXPECT_FALSE(f.attempt.had_started(f.now)) << "it may have started since that listing was asked for";
  f.after(1s).task(0, running());
  EXPECT_TRUE(f.attempt.had_started(f.now - 500ms)) << "a task was heard before";
  EXPECT_TRUE(f.attempt.is_heard(f.now));
  EXPECT_FALSE(f.attempt.is_heard(f.now + SlurmAttempt::kLostAfter));
  f.slurm_says("COMPLETED");
  EXPECT_FALSE(f.attempt.had_started(f.now + 1ms)) << "its end is known";
  EXPECT_FALSE(f.attempt.must_be_listed(f.now + 1ms)) << "Slurm forgets what has ended";
}

TEST(SlurmAttempt, ARequeueWhoseRanksNobodyHeardOfIsOverInTheEnd) {
  Following f;
  f.under_way();
  f.job.restarts = 1;
  f.slurm_says("PENDING", "BeginTime").after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(f.facts(), ElementsAre("stopping requeued save", "gone requeued"));
}

// slurmctld died before it had written down that it had started it, and would start it a second time.
TEST(SlurmAttempt, AJobThatRunsAndIsListedAsWaitingIsOverAndCancelled) {
  for (const bool after_restart : {false, true}) {
    Following f({{7, 1}, 2, 1, after_restart, false});
    if (!after_restart) f.under_way();
    f.slurm_says("PENDING");
    EXPECT_THAT(f.facts(), ElementsAre("stopping requeued save")) << after_restart;
    EXPECT_TRUE(f.attempt.wants_cancel(f.now));
    f.after(SlurmAttempt::kFilePatience + 100ms);
    EXPECT_THAT(f.facts(), ElementsAre("gone requeued")) << after_restart;
  }
}

// Nobody saw it waiting: the second run found the first one's mark, and left with 0.
TEST(SlurmAttempt, AJobThatEndsWellWhileItsRanksAreHeardWasRunTwice) {
  for (const bool heard : {false, true}) {
    Following f;
    f.under_way().slurm_says("COMPLETED").after(1s);
    if (heard) f.task(0, running("node1"));
    f.after(SlurmAttempt::kFilePatience);
    EXPECT_THAT(f.facts(), ElementsAre(heard ? "gone requeued" : "gone failed"));
  }
}

TEST(SlurmAttempt, AJobEndedInTheQueueIsGoneAtOnce) {
  Following cancelled;
  cancelled.slurm_says("PENDING").slurm_says("CANCELLED");
  EXPECT_THAT(cancelled.facts(), ElementsAre("gone cancelled"));
  EXPECT_TRUE(cancelled.attempt.over());
  Following unknown;
  unknown.slurm_says("PENDING").slurm_says("A_STATE_OF_TOMORROW");
  EXPECT_THAT(unknown.facts(), IsEmpty()) << "never a reason to act";
}

// The task beside rank 2 was killed, and its rank with it; srun then ended, and the job.
TEST(SlurmAttempt, ARankWhoseTaskDiedWithoutAWordIsWhatTheOthersFailedWith) {
  Following f({{7, 1}, 3, 1, false, false});
  f.job.node_list = "node[1-3]";
  f.slurm_says("RUNNING").task(0, running()).task(1, running()).task(2, running());
  f.facts();
  f.task(0, exited(1)).task(1, exited(1)).slurm_says("FAILED");
  EXPECT_THAT(f.facts(), IsEmpty());
  f.after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(f.facts(), ElementsAre("rank 2 signal 9", "rank 0 exit 1", "rank 1 exit 1"));
  EXPECT_TRUE(f.attempt.over());
}

TEST(SlurmAttempt, AHealthCheckThatFailedIsANodeFailure) {
  Following f;
  f.job.exit = ::slurm::ExitStatus{96, 0};
  f.slurm_says("RUNNING").slurm_says("FAILED").after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(f.facts(), ElementsAre("started node1 node2", "gone node_failed"));
}

TEST(SlurmAttempt, ASlurmstepdThatDiedIsANodeFailure) {
  Following f;
  auto lost = exited(0, SIGKILL);
  lost.process = TaskReport::Process::kStepLost;
  f.under_way().task(1, lost);
  EXPECT_THAT(f.facts(), ElementsAre("stopping node_failed", "rank 1 signal 9"));
  f.task(0, exited(0, SIGKILL));
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 signal 9"));
  EXPECT_TRUE(f.attempt.wants_cancel(f.now)) << "Slurm would call it running for ever";
}

TEST(SlurmAttempt, SlurmsWarningOfTheLimitMakesRanksSaveThoughNobodyElseAsked) {
  Following f;
  auto warned = running();
  warned.signals_seen = {SIGUSR2};
  f.under_way().task(0, warned);
  EXPECT_THAT(f.facts(), ElementsAre("stopping timed_out save"));
  f.task(0, exited(99, 0, {SIGUSR2})).task(1, exited(99, 0, {SIGUSR2}));
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 99", "rank 1 exit 99"));
}

TEST(SlurmAttempt, AJobThatSlurmDoesNotListIsGivenUpSlowly) {
  Following f;
  f.slurm_says("PENDING").slurm_lists_nothing().slurm_lists_nothing().after(2s).slurm_lists_nothing();
  EXPECT_THAT(f.facts(), IsEmpty()) << "three listings, but not long";
  f.after(SlurmAttempt::kMissingFor).slurm_lists_nothing().after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(f.facts(), ElementsAre("gone controller_lost"));
  EXPECT_TRUE(f.attempt.over());
}

TEST(SlurmAttempt, AJobListedAgainWasNeverMissing) {
  Following f;
  f.slurm_says("PENDING");
  for (int i = 0; i < 5; ++i) f.slurm_lists_nothing().slurm_lists_nothing().after(3s).slurm_says("PENDING");
  EXPECT_THAT(f.facts(), IsEmpty());
}

TEST(SlurmAttempt, RanksThatAreHeardKeepAJobThatSlurmForgot) {
  Following f;
  f.under_way();
  for (int i = 0; i < 20; ++i) f.slurm_lists_nothing().task(0, running()).after(1s);
  EXPECT_THAT(f.facts(), IsEmpty());
  f.task(0, exited(0)).task(1, exited(0)).slurm_lists_nothing();
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 0", "rank 1 exit 0"));
  EXPECT_TRUE(f.attempt.over());
}

TEST(SlurmAttempt, ATaskThatSpeaksAsRarelyAsItIsToldIsHeard) {
  Following f;
  f.under_way();
  f.attempt.tasks_read(f.now, 12s);
  for (int i = 0; i < 5; ++i) {
    f.after(4s);
    f.attempt.tasks_read(f.now, 12s);
    EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kAlive);
    EXPECT_TRUE(f.attempt.is_heard(f.now));
    EXPECT_TRUE(f.attempt.hears_on("node1", f.now));
    EXPECT_FALSE(f.attempt.has_fallen_silent(0, f.now));
    EXPECT_EQ(f.attempt.node_of_missed(0, f.now), "");
    f.task(0, running("node1")).task(1, running("node2"));
  }
  f.after(12s);
  f.attempt.tasks_read(f.now, 12s);
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kUnknown) << "three intervals are enough";
  EXPECT_EQ(f.attempt.node_of_missed(0, f.now), "node1");
}

// Thousands of tasks say the same twice a second, and each word would make the executor look at every rank.
TEST(SlurmAttempt, ATaskThatSaysTheSameAgainIsHeardAndIsNoNews) {
  Following f;
  f.under_way();
  f.after(2s);
  EXPECT_FALSE(f.attempt.task(0, running("node1"), f.now));
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kAlive);
  EXPECT_TRUE(f.attempt.task(0, exited(1), f.now));
}

TEST(SlurmAttempt, WhatATaskSaidAndNobodyHasReadCountsAsHeard) {
  Following f;
  f.under_way();
  const auto read_until = f.now;
  f.attempt.tasks_read(read_until, 0s);
  f.after(60s);
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kAlive);
  EXPECT_FALSE(f.attempt.has_fallen_silent(0, f.now));
  f.attempt.tasks_read(read_until + SlurmAttempt::kHeardWithin, 0s);
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kUnknown) << "by then its word would have been read";
}

TEST(SlurmAttempt, RanksThatAreBeingStoppedAreNotGivenUpWhileTheirTasksAreNotRead) {
  Following f;
  f.under_way();
  f.attempt.tasks_read(f.now, 0s);
  f.attempt.stop({.grace = 1s}, f.now);
  f.after(20s);
  EXPECT_FALSE(f.attempt.ended());
  f.attempt.tasks_read(f.now, 0s);
  f.after(1s);
  EXPECT_TRUE(f.attempt.ended());
}

TEST(SlurmAttempt, AfterARestartTheStatusFilesTellWhatNobodyHeard) {
  Following f({{7, 1}, 2, 1, true, false});
  EXPECT_TRUE(f.attempt.wants_files(f.now));
  const auto zero = exited(0), seven = exited(7);
  f.attempt.file(0, &zero, f.now);
  f.attempt.file(1, &seven, f.now);
  f.attempt.file(1, &seven, f.now);
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 0", "rank 1 exit 7"));
}

// The controller died right after sbatch, and came back when all was over.
TEST(SlurmAttempt, AnAttemptThatRanWhileNobodyFollowedItIsToldFromItsStartToItsEnd) {
  Following f;
  f.job.node_list = "node[1-2]";
  f.slurm_says("COMPLETED");
  EXPECT_TRUE(f.attempt.wants_files(f.now));
  const auto zero = exited(0);
  f.attempt.file(0, &zero, f.now);
  f.attempt.file(1, &zero, f.now);
  f.after(50ms);
  EXPECT_THAT(f.facts(), ElementsAre("started node1 node2", "rank 0 exit 0", "rank 1 exit 0"));
  EXPECT_TRUE(f.attempt.over());
}

TEST(SlurmAttempt, ARequeueOfARunThatNobodyFollowedWaitsForItsFilesToo) {
  Following f;
  f.job.restarts = 1;
  f.slurm_says("PENDING", "BeginTime");
  EXPECT_FALSE(f.attempt.ended());
  f.after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(f.facts(), ElementsAre("gone requeued"));
  Following preempted;
  preempted.job.restarts = 1;
  preempted.job.preempted = Time(1s);
  preempted.slurm_says("COMPLETING").slurm_says("PENDING", "BeginTime").after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(preempted.facts(), ElementsAre("gone preempted"));
}

// Preempted while the controller was away: it waits again, and PreemptTime is gone.
TEST(SlurmAttempt, WhyAJobWaitsAgainIsAccountingsWordWhereListingsForgot) {
  const std::map<std::string, std::string> stories{
      {"PREEMPTED", "preempted"}, {"NODE_FAIL", "node_failed"}, {"REQUEUED", "requeued"}, {"FAILED", "requeued"}};
  for (const auto& [state, cause] : stories) {
    SCOPED_TRACE(state);
    Following f({{7, 1}, 2, 1, true, false});
    f.accounting = true;
    f.job.restarts = 1;
    f.slurm_says("PENDING", "BeginTime");
    EXPECT_TRUE(f.attempt.wants_history());
    EXPECT_THAT(f.facts(), IsEmpty());
    EXPECT_TRUE(f.attempt.wants_cancel(f.now)) << "its second run is nobody's, whatever the first ended of";
    f.slurm_remembers(state);
    EXPECT_FALSE(f.attempt.wants_history());
    EXPECT_THAT(f.facts(), ElementsAre("stopping " + cause + (cause == "node_failed" ? "" : " save")));
    f.slurm_says("CANCELLED").after(SlurmAttempt::kFilePatience + 100ms);
    EXPECT_THAT(f.facts(), ElementsAre("gone " + cause));
    EXPECT_TRUE(f.attempt.over());
  }
}

TEST(SlurmAttempt, AccountingTellsOfARequeueForItsExitCodeWhereItsSecondRunIsListed) {
  Following f({{7, 1}, 2, 1, true, false});
  f.accounting = true;
  f.job.restarts = 1;
  f.slurm_says("RUNNING");
  EXPECT_TRUE(f.attempt.wants_history());
  f.slurm_remembers("REQUEUED", {99, 0}).after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(f.facts(), ElementsAre("gone preempted"));
  Following missing({{7, 1}, 2, 1, true, false});
  missing.accounting = true;
  missing.slurm_lists_nothing().slurm_remembers("REQUEUED", {99, 0}).after(SlurmAttempt::kFilePatience + 100ms);
  EXPECT_THAT(missing.facts(), ElementsAre("gone preempted"));
}

TEST(SlurmAttempt, WhatAListingTellsItselfNeedsNoAccounting) {
  Following requeued;
  requeued.accounting = true;
  requeued.under_way();
  requeued.job.restarts = 1;
  requeued.slurm_says("COMPLETING");
  EXPECT_FALSE(requeued.attempt.wants_history()) << "PreemptTime would be there";
  EXPECT_THAT(requeued.facts(), ElementsAre("stopping requeued save"));
  Following preempted;
  preempted.accounting = true;
  preempted.job.restarts = 1;
  preempted.job.preempted = Time(1s);
  preempted.under_way().slurm_says("PENDING", "BeginTime");
  EXPECT_FALSE(preempted.attempt.wants_history());
  Following stopped;
  stopped.accounting = true;
  stopped.under_way();
  stopped.attempt.stop({2s, true}, stopped.now);
  stopped.slurm_lists_nothing();
  EXPECT_FALSE(stopped.attempt.wants_history()) << "the core knows why";
}

TEST(SlurmAttempt, AnAccountingThatKeepsSilentDoesNotKeepARequeueForLong) {
  Following f({{7, 1}, 2, 1, true, false});
  f.accounting = true;
  f.job.restarts = 1;
  f.slurm_says("PENDING", "BeginTime").after(SlurmAttempt::kHistoryPatience - 100ms);
  EXPECT_THAT(f.facts(), IsEmpty());
  f.after(200ms);
  EXPECT_THAT(f.facts(), ElementsAre("stopping requeued save"));
}

// It ended while the controller was away, longer ago than Slurm lists what has ended.
TEST(SlurmAttempt, TheEndOfAJobThatIsNotListedAnyMoreIsAccountingsWord) {
  const std::map<std::string, std::string> stories{
      {"PREEMPTED", "preempted"}, {"TIMEOUT", "timed_out"},           {"NODE_FAIL", "node_failed"},
      {"CANCELLED", "cancelled"}, {"OUT_OF_MEMORY", "out_of_memory"}, {"REQUEUED", "requeued"},
  };
  for (const auto& [state, cause] : stories) {
    SCOPED_TRACE(state);
    Following f({{7, 1}, 2, 1, true, false});
    f.accounting = true;
    const auto saved = exited(99, 0, {SIGTERM});
    f.attempt.file(0, &saved, f.now);
    f.slurm_lists_nothing();
    EXPECT_THAT(f.facts(), IsEmpty());
    f.slurm_remembers(state).after(SlurmAttempt::kFilePatience + 100ms);
    const std::string save = state == "REQUEUED" ? " save" : "";
    EXPECT_THAT(f.facts(), ElementsAre("stopping " + cause + save, "rank 0 exit 99", "gone " + cause));
    EXPECT_TRUE(f.attempt.over());
  }
}

TEST(SlurmAttempt, AccountingNamesWhoCancelledAndTheExitCode) {
  Following cancelled({{7, 1}, 2, 1, true, false}), failed({{7, 1}, 2, 1, true, false});
  for (auto* f : {&cancelled, &failed}) f->accounting = true;
  cancelled.slurm_lists_nothing().slurm_remembers("CANCELLED by ada");
  auto facts = cancelled.attempt.take_facts();
  ASSERT_EQ(facts.size(), 1U);
  EXPECT_EQ(std::get<core::AttemptStopping>(facts[0]).reason, "cancelled in Slurm by ada, not through muster");
  failed.slurm_lists_nothing().slurm_remembers("FAILED", {7, 0}).after(SlurmAttempt::kFilePatience + 100ms);
  facts = failed.attempt.take_facts();
  ASSERT_EQ(facts.size(), 1U);
  EXPECT_EQ(std::get<core::AttemptGone>(facts[0]).reason, "Slurm job 12 ended as FAILED (exit code 7)");
}

// Slurm lists no more than CANCELLED, and the ranks' ends are older than it can be asked for.
TEST(SlurmAttempt, WhoCancelledIsAskedForBeforeTheCancelIsTold) {
  Following f;
  f.accounting = true;
  f.under_way().task(0, exited(99, 0, {SIGTERM})).task(1, exited(99, 0, {SIGTERM})).slurm_says("COMPLETING");
  f.after(SlurmAttempt::kHoldMost).slurm_says("CANCELLED").slurm_says("CANCELLED");
  EXPECT_TRUE(f.attempt.wants_history());
  EXPECT_THAT(f.facts(), IsEmpty()) << "its ranks' exits must not be told first";
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kEnded);
  f.slurm_remembers("CANCELLED by ada");
  const auto facts = f.attempt.take_facts();
  ASSERT_EQ(facts.size(), 3U);
  EXPECT_EQ(std::get<core::AttemptStopping>(facts[0]).reason, "cancelled in Slurm by ada, not through muster");
  EXPECT_TRUE(f.attempt.over());
  Following queued;
  queued.accounting = true;
  queued.slurm_says("PENDING").slurm_says("CANCELLED").slurm_remembers("CANCELLED by ada");
  EXPECT_EQ(std::get<core::AttemptGone>(queued.attempt.take_facts().at(0)).reason,
            "cancelled in Slurm by ada, not through muster");
}

TEST(SlurmAttempt, ACancelIsToldWithoutANameWhereNoneIsToBeHad) {
  for (const bool accounting : {true, false}) {
    Following f;
    f.accounting = accounting;
    f.under_way().task(0, exited(99, 0, {SIGTERM})).task(1, exited(99, 0, {SIGTERM})).slurm_says("CANCELLED");
    if (accounting) {
      f.slurm_lists_nothing().after(SlurmAttempt::kHistoryPatience - 100ms);
      EXPECT_THAT(f.facts(), IsEmpty());
      f.after(200ms);
    }
    EXPECT_THAT(f.facts(), ElementsAre("stopping cancelled", "rank 0 exit 99", "rank 1 exit 99")) << accounting;
    EXPECT_TRUE(f.attempt.over());
  }
}

TEST(SlurmAttempt, NobodyAsksWhoCancelledWhatMusterCancelled) {
  Following f;
  f.accounting = true;
  f.under_way();
  f.attempt.stop({0s, false}, f.now);
  f.task(0, exited(0, SIGTERM, {SIGTERM})).task(1, exited(0, SIGTERM, {SIGTERM})).slurm_says("CANCELLED");
  EXPECT_FALSE(f.attempt.wants_history());
  EXPECT_TRUE(f.attempt.over());
}

TEST(SlurmAttempt, AccountingIsNotAskedOfAJobWhoseRanksAreHeardNorBelievedOfOneThatIsListedAgain) {
  Following f;
  f.accounting = true;
  f.under_way().slurm_lists_nothing();
  EXPECT_FALSE(f.attempt.wants_history());
  f.after(SlurmAttempt::kLostAfter).slurm_lists_nothing();
  EXPECT_TRUE(f.attempt.wants_history());
  f.slurm_says("RUNNING").slurm_remembers("NODE_FAIL");
  EXPECT_THAT(f.facts(), IsEmpty());
  Following fresh;
  fresh.attempt.observe({nullptr, {}, fresh.now - 1ms, fresh.now, fresh.wall()});
  EXPECT_FALSE(fresh.attempt.wants_history()) << "that listing is older than the job";
}

TEST(SlurmAttempt, AFileOfARankThatRunsSaysNothingAndHeartsNobody) {
  Following f({{7, 1}, 2, 1, true, false});
  const auto alive = running();
  f.attempt.file(0, &alive, f.now);
  f.attempt.file(1, nullptr, f.now);
  EXPECT_THAT(f.facts(), IsEmpty());
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kUnknown) << "a file is as old as its last writing";
}

TEST(SlurmAttempt, FilesAreWaitedForBeforeAnEndedJobIsGivenUp) {
  Following f({{7, 1}, 2, 1, true, false});
  f.slurm_says("FAILED").after(SlurmAttempt::kFilePatience - 100ms);
  EXPECT_TRUE(f.attempt.wants_files(f.now));
  const auto seven = exited(7);
  f.attempt.file(1, &seven, f.now);
  f.after(200ms);
  EXPECT_THAT(f.facts(), ElementsAre("rank 1 exit 7", "gone failed"));
}

// An accounting that hangs, say, may keep the executor from them.
TEST(SlurmAttempt, AnEndedJobIsNotGivenUpBeforeItsFilesAreRead) {
  Following f({{7, 1}, 2, 1, false, false});
  f.reads_files = false;
  f.attempt.files_read(f.now);
  f.job.node_list = "node[1-2]";
  f.slurm_says("COMPLETED").after(10 * SlurmAttempt::kFilePatience);
  EXPECT_THAT(f.facts(), ElementsAre("started node1 node2"));
  const auto zero = exited(0);
  for (const core::RankNumber rank : {0U, 1U}) f.attempt.file(rank, &zero, f.now);
  f.attempt.files_read(f.now);
  f.after(50ms);
  EXPECT_THAT(f.facts(), ElementsAre("rank 0 exit 0", "rank 1 exit 0"));
}

// Its task could reach nobody, and has left; the rest waits for it in vain.
TEST(SlurmAttempt, OneOfAGangThatEndedWhileNobodyListenedIsReadOf) {
  Following f;
  f.slurm_says("RUNNING").after(10 * SlurmAttempt::kLostAfter).task(0, running());
  EXPECT_TRUE(f.attempt.wants_files(f.now));
  const auto seven = exited(7);
  f.attempt.file(1, &seven, f.now);
  f.after(RankExits::kLateWord).task(0, running());
  EXPECT_THAT(f.facts(), ElementsAre("started node1 node2", "rank 1 exit 7"));
  EXPECT_FALSE(f.attempt.wants_files(f.now)) << "the other speaks for itself";
}

// One whose task was killed with it fails the others, and tells nobody.
TEST(SlurmAttempt, WhoseEndIsNotHeardIsNotAcquittedWhileSlurmEndsTheJob) {
  Following f;
  f.under_way().task(0, exited(1));
  f.slurm_says("COMPLETING").after(2 * SlurmAttempt::kHoldMost).slurm_says("COMPLETING");
  EXPECT_THAT(f.facts(), IsEmpty());
  f.slurm_says("FAILED").after(SlurmAttempt::kFilePatience - 50ms);
  EXPECT_THAT(f.facts(), IsEmpty());
  f.after(100ms);
  EXPECT_THAT(f.facts(), ElementsAre("rank 1 signal 9", "rank 0 exit 1"));
}

TEST(SlurmAttempt, AQueuedAttemptThatIsStoppedIsCancelledAtOnce) {
  Following f;
  f.slurm_says("PENDING");
  f.attempt.stop({30s, true}, f.now);
  EXPECT_TRUE(f.attempt.wants_cancel(f.now));
  f.slurm_says("CANCELLED");
  EXPECT_THAT(f.facts(), ElementsAre("gone cancelled"));
}

TEST(SlurmAttempt, ARunningAttemptThatIsStoppedHasItsGrace) {
  Following f;
  f.under_way();
  f.attempt.stop({4s, true}, f.now);
  for (int i = 0; i < 3; ++i) f.task(0, running()).task(1, running()).after(1s);
  EXPECT_FALSE(f.attempt.wants_cancel(f.now));
  f.task(0, running()).task(1, running()).after(1100ms);
  EXPECT_TRUE(f.attempt.wants_cancel(f.now));
  EXPECT_THAT(f.facts(), IsEmpty()) << "the core knows why";
}

TEST(SlurmAttempt, AStopThatIsAskedForTwiceKeepsTheEarlierEnd) {
  Following f;
  f.under_way();
  f.attempt.stop({2s, true}, f.now);
  f.attempt.stop({60s, true}, f.now);
  EXPECT_TRUE(f.attempt.wants_cancel(f.now + 2s));
  f.attempt.stop({0s, false}, f.now);
  EXPECT_TRUE(f.attempt.wants_cancel(f.now)) << "a shorter one counts";
}

// A power cut: nobody is heard, the core has found out and asked for a stop; Slurm will take its time.
TEST(SlurmAttempt, RanksThatCannotBeHeardAreGivenUpWhenTheAttemptIsStopped) {
  Following f;
  f.under_way().after(SlurmAttempt::kLostAfter);
  f.attempt.stop({0s, false}, f.now);
  f.after(100ms);
  EXPECT_THAT(f.facts(), ElementsAre("gone node_failed"));
  EXPECT_FALSE(f.attempt.over()) << "Slurm still has it";
  EXPECT_TRUE(f.attempt.wants_cancel(f.now));
}

TEST(SlurmAttempt, RanksThatAreHeardAreNotGivenUp) {
  Following f;
  f.under_way();
  f.attempt.stop({0s, false}, f.now);
  for (int i = 0; i < 10; ++i) f.task(0, running()).after(1s);
  EXPECT_THAT(f.facts(), IsEmpty());
}

TEST(SlurmAttempt, VouchesForWhatItsTaskSaidLatelyAndForNothingElse) {
  Following f;
  f.under_way();
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kAlive);
  auto stopped = running();
  stopped.process = TaskReport::Process::kStopped;
  f.task(0, stopped);
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kStopped);
  f.task(1, exited(7));
  EXPECT_EQ(f.attempt.vouch(1, f.now), Vouch::kEnded) << "its end is not told yet";
  EXPECT_EQ(f.attempt.vouch(2, f.now), Vouch::kUnknown);
  f.after(SlurmAttempt::kHeardWithin);
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kUnknown);
  EXPECT_EQ(f.attempt.vouch(1, f.now), Vouch::kEnded) << "its task has left, and its node is none the worse";
  Following told;
  told.under_way().task(1, exited(0));
  EXPECT_EQ(told.attempt.vouch(1, told.now), Vouch::kGone);
}

// An outsider's scancel, and a rank that did not leave in time: Slurm has killed it, and its task with it.
TEST(SlurmAttempt, WhatIsKilledWithItsTaskIsNotCalledSilentBeforeSlurmHasSaidWhy) {
  Following f;
  f.under_way().after(SlurmAttempt::kHeardWithin);
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kUnknown);
  f.slurm_says("COMPLETING");
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kEnded);
  f.after(SlurmAttempt::kHoldWhileEnding - core::Millis(2)).slurm_says("COMPLETING");
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kEnded);
  f.after(core::Millis(1)).slurm_says("COMPLETING");
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kUnknown) << "its node may be lost";
  f.slurm_says("CANCELLED");
  EXPECT_EQ(f.attempt.vouch(0, f.now), Vouch::kEnded);
}

TEST(SlurmAttempt, ATeardownMayTakeItsTimeButNotForEver) {
  Following f;
  f.under_way().task(0, exited(0)).task(1, exited(0)).slurm_says("RUNNING");
  EXPECT_FALSE(f.attempt.wants_cancel(f.now));
  EXPECT_TRUE(f.attempt.wants_cancel(f.now + SlurmAttempt::kTeardownMost));
}

// The machine, or the disk, stood still: nobody could be heard, and a stop was under way.
TEST(SlurmAttempt, AfterAStandstillNobodyIsGivenUpForSilenceDuringIt) {
  Following f;
  f.under_way();
  f.attempt.stop({1s, false}, f.now);
  f.now += 30s;
  f.attempt.was_deaf(f.now);
  f.after(2900ms);
  EXPECT_THAT(f.facts(), IsEmpty());
  f.after(200ms);
  EXPECT_THAT(f.facts(), ElementsAre("gone node_failed")) << "but for silence after it";
}

// Goal: where a rank runs is its task's word: `srun --distribution=cyclic` puts neighbours on different nodes.
// Method: two nodes with two ranks each; Slurm lists the nodes, the tasks say where they are.
TEST(SlurmAttempt, WhereARankRunsIsItsTasksWord) {
  Following f({{7, 1}, 4, 2, false, false});
  f.task(2, running("node1")).slurm_says("RUNNING");
  EXPECT_THAT(f.facts(), ElementsAre("started node1 node1 node1 node2"));
  f.task(0, running("node1")).task(1, running("node2"));
  EXPECT_THAT(f.facts(), IsEmpty()) << "told once, when all are known";
  f.task(3, running("node2"));
  EXPECT_THAT(f.facts(), ElementsAre("seen on node1 node2 node1 node2"));
  f.task(1, running("node2")).after(10s);
  EXPECT_THAT(f.facts(), IsEmpty());
  for (const core::RankNumber rank : {0, 2}) f.task(rank, running("node1"));
  EXPECT_EQ(f.attempt.node_of_missed(1, f.now), "node2");
  EXPECT_EQ(f.attempt.node_of_missed(3, f.now), "node2");
  EXPECT_FALSE(f.attempt.hears_on("node2", f.now)) << "rank 2, which is on node1, does not speak for it";
  EXPECT_TRUE(f.attempt.hears_on("node1", f.now));
  f.job.restarts = 1;
  f.slurm_says("PENDING");
  EXPECT_THAT(f.reasons(), ElementsAre(::testing::EndsWith("it ran on node[1-2]")));
}

TEST(SlurmAttempt, WhereRanksRunIsToldAlsoIfSomeNeverSpeak) {
  Following f({{7, 1}, 4, 2, false, false});
  f.slurm_says("RUNNING").task(1, running("node2"));
  f.facts();
  f.after(4s);
  EXPECT_THAT(f.facts(), IsEmpty());
  f.task(1, running("node2")).after(1s);
  EXPECT_THAT(f.facts(), ElementsAre("seen on node1 node2 node2 node2"));
}

}  // namespace
}  // namespace executors::on_slurm
