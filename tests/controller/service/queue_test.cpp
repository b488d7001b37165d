// Goal: attempts that wait in a queue, are held, or must be launched again start once; nobody judges them before that.
// Method: the real controller without threads on an executor whose queue moves when the test says so.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

muster::v1::TaskRequest task(core::AttemptKey key, core::RankNumber rank, muster::v1::ProcessState state) {
  muster::v1::TaskRequest request;
  *request.mutable_key() = Bench::beat(key, rank).key();
  request.set_state(state);
  request.set_node("n1");
  request.set_pid(77);
  request.set_signal(9);
  request.set_out_of_memory(true);
  request.add_signals_seen(15);
  return request;
}

class Queue : public ::testing::TestWithParam<StoreKind> {
 protected:
  Queue() { bench.machine->queue = true; }
  /// Submitted, and in the queue.
  core::JobId queued(const muster::v1::SubmitRequest& request = recipe_request("a")) {
    const auto id = bench.submit(request);
    EXPECT_EQ(bench.state(id), "queued");
    return id;
  }
  /// Submitted, and decided upon before the scheduler answers.
  core::JobId decided_too_early(const std::function<void(core::JobId)>& decide) {
    bench.machine->launch_later = "slurmctld does not answer";
    const auto id = bench.submit(recipe_request("a"));
    decide(id);
    bench.machine->launch_later.clear();
    bench.pass(3s);
    return id;
  }
  void expect_not_launched(core::JobId id) {
    EXPECT_FALSE(bench.machine->has({id, 1}));
    EXPECT_TRUE(bench.store().pending_actions().empty());
  }
  /// With its nodes, and a word of each rank.
  void begin(core::AttemptKey key) {
    bench.executor().begin(key, {"n1", "n2"});
    bench.tick();
    bench.heartbeats(key, 2, 1);
  }
  Bench bench{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Stores, Queue, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Queue, AnAttemptWaitsStartsAndEnds) {
  const auto id = queued();
  auto job = bench.job(id);
  EXPECT_EQ(job.executor(), "slurm");
  EXPECT_EQ(job.attempts(0).scheduler_job(), std::to_string(100 * id + 1));
  EXPECT_FALSE(job.attempts(0).queued_at().empty());
  EXPECT_TRUE(job.started_at().empty());
  begin({id, 1});
  job = bench.job(id);
  EXPECT_EQ(job.state(), "running");
  EXPECT_THAT(job.attempts(0).nodes(), ElementsAre("n1", "n2"));
  bench.executor().end_all({id, 1}, {0, 0});
  bench.tick();
  EXPECT_EQ(bench.state(id), "succeeded");
}

TEST_P(Queue, NobodyIsJudgedSilentOrLateBeforeTheStart) {
  auto request = recipe_request("a");
  request.mutable_spec()->mutable_resources()->set_time_limit_ms(60'000);
  request.mutable_spec()->mutable_liveness()->set_join_within_ms(20'000);
  const auto id = queued(request);
  bench.executor().vouches_unknown = true;
  bench.pass(5min);
  EXPECT_EQ(bench.state(id), "queued");
  bench.restart();
  bench.executor().vouches_unknown = true;
  bench.pass(5min);
  EXPECT_EQ(bench.state(id), "queued") << "nor after a restart";
  bench.executor().begin({id, 1}, {"n1", "n2"});
  const auto one_comes = [&] { bench.heartbeat({id, 1}, 0); };
  bench.pass(19s, one_comes);
  EXPECT_EQ(bench.attempt(id, 1).state(), "starting") << "the time to join counts from the start";
  EXPECT_EQ(bench.count_events(id, "attempt_suspected"), 0);
  bench.pass(2s, one_comes);
  EXPECT_EQ(bench.count_events(id, "attempt_suspected"), 1) << "but it does count";
  bench.pass(8s, one_comes);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "") << "it may have no way to musterd";
  bench.pass(3s, one_comes);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "timed_out") << "as the time limit does";
}

TEST_P(Queue, ALaunchThatMustWaitIsAskedForAgainAndLeavesNoTraceUntilThen) {
  bench.machine->launch_later = "slurmctld does not answer";
  const auto id = bench.submit(recipe_request("a"));
  bench.pass(5s);
  EXPECT_EQ(bench.state(id), "pending");
  EXPECT_THAT(bench.event_types(id), ElementsAre("job_submitted"));
  EXPECT_EQ(bench.store().pending_actions().size(), 1U);
  bench.restart();
  bench.pass(2s);
  bench.machine->launch_later.clear();
  bench.pass(1100ms);
  EXPECT_EQ(bench.state(id), "queued");
  EXPECT_EQ(bench.machine->starts[(core::AttemptKey{id, 1})], 1);
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Queue, AJobCancelledWhileItsLaunchMustWaitIsNeverLaunched) {
  expect_not_launched(
      decided_too_early([&](core::JobId id) { EXPECT_TRUE(bench.controller().cancel(id, "ada").ok()); }));
}

// The queue has taken it, and its answer got lost.
TEST_P(Queue, AJobHeldWhileNobodyKnowsWhetherTheSchedulerHasItIsHeldThere) {
  bench.machine->takes_silently = true;
  bench.machine->launch_later = "looking whether Slurm has taken it";
  const auto id = bench.submit(recipe_request("a"));
  const core::AttemptKey key{id, 1};
  ASSERT_TRUE(bench.controller().hold(id, "ben").ok());
  bench.pass(3s);
  EXPECT_EQ(bench.state(id), "pending");
  const auto answer = bench.controller().task(task(key, 0, muster::v1::PROCESS_RUNNING), bench.token(key));
  EXPECT_EQ(answer.value().directive(), muster::v1::DIRECTIVE_CONTINUE) << "where it has begun it is not ended";
  bench.machine->launch_later.clear();
  bench.pass(3s);
  EXPECT_EQ(bench.state(id), "queued");
  EXPECT_THAT(bench.machine->holds, ElementsAre(Pair(key, true)));
  ASSERT_TRUE(bench.controller().release(id, "ben").ok());
  bench.tick();
  begin(key);
  EXPECT_EQ(bench.state(id), "running");
  EXPECT_EQ(bench.machine->starts[key], 1);
}

// Its answer got lost, and its folder broke before the next try.
TEST_P(Queue, AJobThatCannotBePreparedAnyMoreIsNotFailedWhileTheSchedulerMayHaveIt) {
  bench.machine->takes_silently = true;
  bench.machine->launch_later = "looking whether Slurm has taken it";
  const auto id = bench.submit(recipe_request("a"));
  const std::filesystem::path folder = bench.machine->get({id, 1}).request.attempt_folder;
  std::filesystem::remove_all(folder);
  std::ofstream(folder) << "in the way";
  bench.pass(3s);
  EXPECT_EQ(bench.state(id), "pending");
  bench.machine->launch_later.clear();
  bench.pass(3s);
  EXPECT_EQ(bench.state(id), "queued");
}

TEST_P(Queue, AJobHeldBeforeTheSchedulerHasItIsNotLaunchedBeforeItsRelease) {
  const auto id = decided_too_early([&](core::JobId job) { EXPECT_TRUE(bench.controller().hold(job, "ben").ok()); });
  expect_not_launched(id);
  ASSERT_TRUE(bench.controller().release(id, "ben").ok());
  bench.pass(3s);
  EXPECT_EQ(bench.state(id), "queued");
}

TEST_P(Queue, HoldAndReleaseReachTheScheduler) {
  const auto id = queued();
  ASSERT_TRUE(bench.controller().hold(id, "ben").ok());
  EXPECT_EQ(bench.job(id).held_by(), "ben");
  bench.tick();
  ASSERT_TRUE(bench.controller().release(id, "ben").ok());
  bench.tick();
  const core::AttemptKey key{id, 1};
  EXPECT_THAT(bench.machine->holds, ElementsAre(Pair(key, true), Pair(key, false)));
  EXPECT_EQ(bench.job(id).held_by(), "");
  const auto again = bench.controller().release(id, "ben");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.refusal().kind, common::Refusal::Kind::kWrongState);
  EXPECT_EQ(again.refusal().text, "job " + std::to_string(id) + " is not held");
}

TEST_P(Queue, AHoldThatCannotBeCarriedOutNowIsTriedAgainUnlessItHasBeenReleased) {
  const auto id = queued();
  bench.machine->answers = false;
  ASSERT_TRUE(bench.controller().hold(id, "ben").ok());
  bench.pass(3s);
  EXPECT_GE(bench.machine->holds.size(), 3U);
  ASSERT_TRUE(bench.controller().release(id, "ben").ok());
  bench.machine->holds.clear();
  bench.machine->answers = true;
  bench.pass(3s);
  EXPECT_THAT(bench.machine->holds, ElementsAre(Pair(core::AttemptKey{id, 1}, false)));
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Queue, AHoldThatComesTooLateIsNotAskedOfAnAttemptThatRuns) {
  const auto id = queued();
  bench.machine->answers = false;
  ASSERT_TRUE(bench.controller().hold(id, "ben").ok());
  bench.tick();
  bench.machine->holds.clear();
  begin({id, 1});
  bench.pass(2s, [&] { bench.heartbeats({id, 1}, 2, 1); });
  EXPECT_TRUE(bench.machine->holds.empty());
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Queue, AJobHeldAtSubmitStartsWhenReleasedEvenAfterARestart) {
  auto request = recipe_request("a");
  request.mutable_spec()->set_hold(true);
  const auto id = bench.submit(request);
  bench.pass(2s);
  EXPECT_EQ(bench.state(id), "pending");
  EXPECT_FALSE(bench.machine->has({id, 1}));
  bench.restart();
  bench.pass(2s);
  EXPECT_FALSE(bench.machine->has({id, 1}));
  ASSERT_TRUE(bench.controller().release(id, "ada").ok());
  bench.tick();
  EXPECT_TRUE(bench.machine->has({id, 1}));
}

TEST_P(Queue, AHeldJobDoesNotComeBackBeforeItsRelease) {
  const auto id = queued(recipe_request("a", 1));
  bench.executor().begin({id, 1}, {"n1"});
  bench.tick();
  ASSERT_TRUE(bench.controller().hold(id, "ben").ok());
  bench.executor().end({id, 1}, 0, {1, 0});
  bench.pass(5s);
  EXPECT_EQ(bench.state(id), "waiting");
  EXPECT_FALSE(bench.machine->has({id, 2}));
  ASSERT_TRUE(bench.controller().release(id, "ben").ok());
  bench.tick();
  EXPECT_TRUE(bench.machine->has({id, 2}));
}

TEST_P(Queue, ARankThatSpeaksFirstStartsItAndTheSchedulersWordStillTellsTheOtherNodes) {
  const auto id = queued();
  EXPECT_EQ(bench.heartbeat({id, 1}, 0, 1), muster::v1::DIRECTIVE_CONTINUE);
  EXPECT_EQ(bench.state(id), "running");
  bench.executor().begin({id, 1}, {"n1", "n2"});
  bench.tick();
  EXPECT_THAT(bench.attempt(id, 1).nodes(), ElementsAre("n1", "n2"));
  bench.executor().begin({id, 1}, {"n1", "n2"});
  bench.tick();
  EXPECT_EQ(bench.count_events(id, "attempt_started"), 1) << "the same again is no news";
}

TEST_P(Queue, TheSchedulersWordOfAPreemptionIsKeptOnceAndItsCauseStays) {
  const auto id = queued();
  begin({id, 1});
  for (int i = 0; i < 2; ++i) {
    bench.executor().tell(id, core::AttemptStopping{1, core::Cause::kPreempted, "preempted by a job of high"});
    bench.tick();
  }
  EXPECT_EQ(bench.count_events(id, "attempt_stopping"), 1);
  EXPECT_EQ(bench.heartbeat({id, 1}, 0, 2), muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  bench.executor().end_all({id, 1}, {99, 0});
  bench.tick();
  EXPECT_EQ(bench.attempt(id, 1).cause(), "preempted");
  EXPECT_EQ(bench.attempt(id, 1).reason(), "preempted by a job of high");
  EXPECT_EQ(bench.state(id), "queued") << "back at once";
}

TEST_P(Queue, AChangedTimeLimitReachesTheSchedulerAndIsKeptForTheNextAttempt) {
  const auto id = queued();
  ASSERT_TRUE(bench.controller().set_time_limit(id, 2h, "ben").ok());
  bench.tick();
  EXPECT_THAT(bench.machine->limits, ElementsAre(Pair(core::AttemptKey{id, 1}, 2h)));
  EXPECT_EQ(bench.job(id).time_limit_ms(), core::Millis(2h).count());
  begin({id, 1});
  bench.executor().end_all({id, 1}, {0, 9});
  bench.pass(2s);
  EXPECT_EQ(bench.machine->get({id, 2}).request.time_limit, 2h);
  EXPECT_EQ(bench.controller().set_time_limit(id, -1s, "ben").refusal().kind, common::Refusal::Kind::kInvalid);
  EXPECT_EQ(bench.controller().set_time_limit(99, 1s, "ben").refusal().kind, common::Refusal::Kind::kNotFound);
}

TEST_P(Queue, ATimeLimitThatTheSchedulerRefusesIsToldAndNotShown) {
  const auto id = queued();
  begin({id, 1});
  ASSERT_TRUE(bench.controller().set_time_limit(id, 1h, "ben").ok());
  bench.tick();
  bench.machine->limit_refusal = "Access/permission denied for job 101";
  const auto asked = bench.controller().set_time_limit(id, 2h, "ben");
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(asked.value().time_limit_ms(), core::Millis(1h).count());
  EXPECT_EQ(asked.value().time_limit_asked_ms(), core::Millis(2h).count());
  bench.tick();
  const auto job = bench.job(id);
  EXPECT_EQ(job.time_limit_ms(), core::Millis(1h).count());
  EXPECT_FALSE(job.has_time_limit_asked_ms());
  EXPECT_EQ(job.time_limit_problem(),
            "the scheduler refuses a time limit of 2 h: Access/permission denied for job 101; 1 h stays in force");
  EXPECT_EQ(bench.count_events(id, "time_limit_answered"), 2);
  EXPECT_TRUE(bench.store().pending_actions().empty()) << "nobody asks again";
}

TEST_P(Queue, ATimeLimitThatWasTakenBeforeACrashIsAskedForAgainAndToldOnce) {
  const auto id = queued();
  bench.machine->answers = false;
  ASSERT_TRUE(bench.controller().set_time_limit(id, 2h, "ben").ok());
  bench.tick();
  EXPECT_EQ(bench.job(id).time_limit_ms(), 0) << "Slurm is away";
  bench.restart();
  bench.machine->answers = true;
  bench.pass(2s);
  EXPECT_EQ(bench.job(id).time_limit_ms(), core::Millis(2h).count());
  EXPECT_EQ(bench.count_events(id, "time_limit_answered"), 1);
}

TEST_P(Queue, OfSeveralTimeLimitsThatCouldNotBeSetTheNewestIs) {
  const auto id = queued();
  bench.machine->answers = false;
  for (const auto limit : {1h, 2h, 3h}) ASSERT_TRUE(bench.controller().set_time_limit(id, limit, "ben").ok());
  bench.tick();
  bench.machine->limits.clear();
  bench.machine->answers = true;
  bench.pass(2s);
  EXPECT_THAT(bench.machine->limits, ElementsAre(Pair(core::AttemptKey{id, 1}, 3h)));
}

TEST_P(Queue, RanksAreAskedToSaveBeforeTheSchedulerKillsThem) {
  auto request = recipe_request("a");
  request.mutable_spec()->mutable_resources()->set_time_limit_ms(100'000);
  const auto id = queued(request);  // a stop grace of 30 s
  bench.pass(60s);
  begin({id, 1});
  const auto speak = [&] { bench.heartbeats({id, 1}, 2, 1); };
  bench.pass(69s, speak);
  EXPECT_EQ(bench.attempt(id, 1).state(), "running");
  bench.pass(2s, speak);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "timed_out");
}

TEST_P(Queue, AnEarlierAndALaterTimeLimitCountFromTheStart) {
  const auto id = queued();
  begin({id, 1});
  const auto speak = [&] { bench.heartbeats({id, 1}, 2, 1); };
  bench.pass(10s, speak);
  ASSERT_TRUE(bench.controller().set_time_limit(id, 40s, "ben").ok());  // save at 20 s: half of it
  bench.pass(5s, speak);
  ASSERT_TRUE(bench.controller().set_time_limit(id, 70s, "ben").ok());  // save at 40 s
  bench.pass(20s, speak);
  EXPECT_EQ(bench.attempt(id, 1).state(), "running");
  bench.pass(6s, speak);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "timed_out");
}

TEST_P(Queue, ANodeWhoseRanksAreAllUnheardIsLostOnceTheOthersStandStillAndTheJobComesBack) {
  const auto id = queued(recipe_request("a", 2));
  begin({id, 1});
  for (core::Step step = 1; step <= 30; ++step) bench.pass(200ms, [&] { bench.heartbeats({id, 1}, 2, step); });
  bench.executor().vouches_unknown = true;
  for (core::Step step = 31; step <= 100; ++step) {
    bench.pass(200ms, [&] { bench.heartbeat({id, 1}, 0, step); });
  }
  EXPECT_EQ(bench.state(id), "running") << "rank 0 goes on, so rank 1 does too";
  bench.pass(59s, [&] { bench.heartbeat({id, 1}, 0, 100); });
  EXPECT_EQ(bench.state(id), "running") << "it may wait for what rank 1 does";
  bench.pass(1500ms, [&] { bench.heartbeat({id, 1}, 0, 100); });
  auto attempt = bench.attempt(id, 1);
  EXPECT_EQ(attempt.cause(), "node_failed");
  EXPECT_THAT(attempt.reason(), HasSubstr("node n2 lost: nothing on it was heard for 1 min 13 s"));
  EXPECT_EQ(bench.store().node_losses(core::Time{}, 10).size(), 1U);
  EXPECT_EQ(bench.heartbeat({id, 1}, 0, 2), muster::v1::DIRECTIVE_STOP);
  bench.executor().end({id, 1}, 0, {0, 15});
  bench.executor().tell(id, core::AttemptGone{1, core::Cause::kNodeFailed, "NODE_FAIL"});
  bench.tick();
  EXPECT_EQ(bench.state(id), "queued") << "at once";
}

TEST_P(Queue, TwoNodesLostAtOnceAreBothRemembered) {
  const auto id = queued();
  begin({id, 1});
  bench.executor().vouches_unknown = true;
  bench.pass(9min + 50s);
  EXPECT_EQ(bench.job(id).status(), "running, suspected");
  bench.pass(11s);
  EXPECT_EQ(bench.store().node_losses(core::Time{}, 10).size(), 2U);
}

TEST_P(Queue, ANodeLostLatelyIsLeftOutForTenMinutesAndNoLonger) {
  const auto id = queued();
  EXPECT_THAT(bench.machine->get({id, 1}).request.exclude_nodes, IsEmpty());
  begin({id, 1});
  bench.executor().tell(id, core::NodeLost{1, "n2", 3s});
  bench.executor().tell(id, core::AttemptGone{1, core::Cause::kNodeFailed, "NODE_FAIL"});
  bench.tick();
  EXPECT_THAT(bench.machine->get({id, 2}).request.exclude_nodes, ElementsAre("n2"));
  bench.restart();
  bench.clock.advance(9min);
  const auto other = queued(recipe_request("b"));
  EXPECT_THAT(bench.machine->get({other, 1}).request.exclude_nodes, ElementsAre("n2")) << "other jobs avoid it, too";
  bench.clock.advance(2min);
  const auto later = queued(recipe_request("c"));
  EXPECT_THAT(bench.machine->get({later, 1}).request.exclude_nodes, IsEmpty());
}

// Jobs in the scheduler that bear this controller's name are cancelled if their attempts are over.
TEST_P(Queue, OnlyWhatThisControllerKnowsToBeOverIs) {
  const auto id = queued();
  const auto over = [&](core::AttemptKey key) { return bench.executor().is_over(key); };
  EXPECT_FALSE(over({id, 1}));
  EXPECT_FALSE(over({id, 2})) << "it may be on its way";
  EXPECT_FALSE(over({id + 7, 1})) << "of another store";
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  EXPECT_FALSE(over({id, 1})) << "it is leaving";
  bench.executor().tell(id, core::AttemptGone{1, core::Cause::kCancelled, ""});
  bench.tick();
  EXPECT_TRUE(over({id, 1}));
  EXPECT_TRUE(over({id, 2}));
}

TEST_P(Queue, WhyTellsTheSchedulersReasonAndWhatToDo) {
  const auto id = queued();
  EXPECT_EQ(bench.why(id).reason(), "attempt 1: queued as Slurm job " + std::to_string(100 * id + 1));
  bench.machine->word =
      executors::QueueWord{"101", "Priority", "Jobs of higher priority go first.", "Wait, or use partition high.",
                           core::Time(core::Millis(1'700'000'000'000))};
  auto why = bench.why(id);
  EXPECT_EQ(why.state(), "queued");
  EXPECT_EQ(why.reason(), "Jobs of higher priority go first.");
  EXPECT_EQ(why.action(), "Wait, or use partition high.");
  EXPECT_EQ(why.scheduler_reason(), "Priority");
  EXPECT_EQ(why.expected_start(), "2023-11-14T22:13:20.000Z");
  ASSERT_TRUE(bench.controller().hold(id, "ben").ok());
  why = bench.why(id);
  EXPECT_EQ(why.reason(), "held by ben until released");
  EXPECT_EQ(why.action(), "Release it when it may start: muster release " + std::to_string(id));
  ASSERT_TRUE(bench.controller().release(id, "ben").ok());
  bench.machine->trouble =
      executors::Trouble{core::Time(core::Millis(1'700'000'000'000)), "squeue took longer than 5 s"};
  why = bench.why(id);
  EXPECT_EQ(why.reason(), "scheduler unreachable since 2023-11-14 22:13:20 UTC: squeue took longer than 5 s");
  EXPECT_THAT(why.action(), HasSubstr("Nothing is lost"));
  EXPECT_EQ(bench.job(id).scheduler_problem(), why.reason());
  EXPECT_EQ("scheduler " + bench.controller().status().scheduler_problem(), why.reason());
  EXPECT_EQ(bench.controller().why(99).refusal().kind, common::Refusal::Kind::kNotFound);
}

// A line of setup that ended the script: there is no rank, and no rank's log.
TEST_P(Queue, WhyOfAnEndThatNoRankIsToBlameForNamesSlurmsLog) {
  auto request = recipe_request("a");
  request.mutable_spec()->mutable_requeue()->set_max_failed(0);
  const auto id = queued(request);
  bench.executor().begin({id, 1}, {"n1", "n2"});
  bench.executor().tell(id, core::AttemptGone{1, core::Cause::kFailed, "ended (exit code 3)"});
  bench.tick();
  const auto why = bench.why(id);
  EXPECT_EQ(why.state(), "failed");
  EXPECT_EQ(why.reason(), "ended (exit code 3); requeue.max_failed is 0");
  EXPECT_THAT(why.action(), HasSubstr("muster logs " + std::to_string(id) + " --slurm"));
}

TEST_P(Queue, ADebugJobIsNoneOfAControllers) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_resources()->set_ranks_per_node(1);
  request.mutable_spec()->set_executor("debug");
  const auto outcome = bench.controller().submit(request);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.refusal().text, ::testing::StartsWith("executor \"debug\": it runs where muster submit runs"));
}

TEST_P(Queue, AListTellsWhatItsJobsWaitFor) {
  const auto first = queued();
  auto request = command_request("b");
  request.mutable_spec()->add_after("succeeded:" + std::to_string(first));
  bench.submit(request);
  ASSERT_TRUE(bench.controller().hold(first, "ben").ok());
  bench.machine->trouble = executors::Trouble{bench.clock.wall(), "down"};
  const auto list = bench.controller().list({});
  ASSERT_EQ(list.jobs_size(), 2);
  EXPECT_EQ(list.jobs(1).held_by(), "ben");
  EXPECT_THAT(list.jobs(1).scheduler_problem(), HasSubstr("down"));
  ASSERT_EQ(list.jobs(0).waits_for_size(), 1);
  EXPECT_EQ(list.jobs(0).waits_for(0), "succeeded:" + std::to_string(first));
}

TEST_P(Queue, AnUnreachableSchedulerIsNoProblemOfLocalOrEndedJobs) {
  const auto ended = queued();
  ASSERT_TRUE(bench.controller().cancel(ended, "ada").ok());
  bench.executor().tell(ended, core::AttemptGone{1, core::Cause::kCancelled, ""});
  bench.tick();
  auto request = recipe_request("b");
  request.mutable_spec()->set_executor("local");
  const auto local = bench.submit(request);
  bench.machine->trouble = executors::Trouble{bench.clock.wall(), "down"};
  EXPECT_EQ(bench.job(local).state(), "running");
  EXPECT_EQ(bench.job(local).scheduler_problem(), "");
  EXPECT_EQ(bench.job(ended).scheduler_problem(), "");
  const auto pending = bench.submit([] {
    auto held = recipe_request("c");
    held.mutable_spec()->set_hold(true);
    return held;
  }());
  EXPECT_THAT(bench.job(pending).scheduler_problem(), HasSubstr("down"));
}

TEST_P(Queue, WhyOfJobsThatWaitForPeopleTimeOrEachOther) {
  auto request = recipe_request("a", 1);
  request.mutable_spec()->set_hold(true);
  const auto held = bench.submit(request);
  EXPECT_EQ(bench.why(held).action(), "Release it when it may start: muster release " + std::to_string(held));
  auto after = recipe_request("b", 1);
  after.mutable_spec()->add_after("succeeded:" + std::to_string(held));
  const auto waiting = bench.submit(after);
  EXPECT_EQ(bench.why(waiting).reason(), "waiting for job " + std::to_string(held) + " to succeed");
  EXPECT_EQ(bench.why(waiting).action(), "It starts by itself. What it waits for: muster why " + std::to_string(held));
  EXPECT_THAT(bench.job(waiting).waits_for(), ElementsAre("succeeded:" + std::to_string(held)));
  ASSERT_TRUE(bench.controller().cancel(held, "ada").ok());
  bench.tick();
  EXPECT_EQ(bench.why(held).action(), "") << "it is over";
  EXPECT_EQ(bench.job(held).held_by(), "");
  EXPECT_EQ(bench.state(waiting), "cancelled");
  EXPECT_THAT(bench.job(waiting).waits_for(), IsEmpty());
  const auto failing = queued(recipe_request("c", 1));
  bench.executor().begin({failing, 1}, {"n1"});
  bench.tick();
  ASSERT_TRUE(bench.controller().hold(failing, "ben").ok());
  EXPECT_EQ(bench.why(failing).action(),
            "Release it when a next attempt may start: muster release " + std::to_string(failing));
  ASSERT_TRUE(bench.controller().release(failing, "ben").ok());
  bench.executor().end({failing, 1}, 0, {1, 0});
  bench.tick();
  EXPECT_THAT(bench.why(failing).action(), HasSubstr("muster requeue " + std::to_string(failing)));
}

TEST_P(Queue, WhatStandsBesideARankIsHeardAndToldWhatTheRankIsToDo) {
  const auto id = queued();
  const core::AttemptKey key{id, 1};
  const auto say = [&](muster::v1::ProcessState state) {
    const auto outcome = bench.controller().task(task(key, 1, state), bench.token(key));
    EXPECT_TRUE(outcome.ok()) << outcome.refusal().text;
    return outcome.value();
  };
  EXPECT_EQ(say(muster::v1::PROCESS_STARTING).directive(), muster::v1::DIRECTIVE_CONTINUE);
  EXPECT_EQ(say(muster::v1::PROCESS_RUNNING).interval_ms(), 500);
  say(muster::v1::PROCESS_STOPPED);
  say(muster::v1::PROCESS_EXITED);
  say(muster::v1::PROCESS_STEP_LOST);
  using Process = executors::TaskReport::Process;
  std::vector<Process> heard;
  for (const auto& [from, report] : bench.machine->tasks) heard.push_back(report.process);
  EXPECT_THAT(heard, ElementsAre(Process::kStarting, Process::kRunning, Process::kStopped, Process::kExited,
                                 Process::kStepLost));
  const auto& report = bench.machine->tasks.back().second;
  EXPECT_EQ(report.node, "n1");
  EXPECT_EQ(report.pid, 77);
  EXPECT_EQ(report.exit, (core::ExitStatus{0, 9}));
  EXPECT_TRUE(report.out_of_memory);
  EXPECT_THAT(report.signals_seen, ElementsAre(15));
  begin(key);
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  EXPECT_EQ(say(muster::v1::PROCESS_RUNNING).directive(), muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  bench.executor().end_all(key, {99, 0});
  bench.tick();
  const auto count = bench.machine->tasks.size();
  EXPECT_EQ(say(muster::v1::PROCESS_RUNNING).directive(), muster::v1::DIRECTIVE_STOP);
  EXPECT_EQ(bench.machine->tasks.size(), count) << "of an ended attempt nothing is news";
}

TEST_P(Queue, ATaskNeedsItsAttemptsToken) {
  const auto id = queued();
  const auto bad = bench.controller().task(task({id, 1}, 0, muster::v1::PROCESS_RUNNING), bench.token({id, 2}));
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.refusal().kind, common::Refusal::Kind::kUnauthenticated);
  EXPECT_FALSE(bench.controller().task(task({id, 1}, 7, muster::v1::PROCESS_RUNNING), bench.token({id, 1})).ok());
  EXPECT_TRUE(bench.machine->tasks.empty());
}

TEST_P(Queue, ATaskMaySpeakBeforeItsLaunchIsRecorded) {
  bench.machine->launch_later = "sbatch was asked, and its answer got lost";
  const auto id = bench.submit(recipe_request("a"));
  const auto answer = bench.controller().task(task({id, 1}, 0, muster::v1::PROCESS_RUNNING), bench.token({id, 1}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer.value().directive(), muster::v1::DIRECTIVE_CONTINUE);
  EXPECT_EQ(bench.machine->tasks.size(), 1U);
  const auto stranger = bench.controller().task(task({id, 2}, 0, muster::v1::PROCESS_RUNNING), bench.token({id, 2}));
  EXPECT_EQ(stranger.value().directive(), muster::v1::DIRECTIVE_STOP) << "nobody expects that one";
  EXPECT_EQ(bench.machine->tasks.size(), 1U);
}

TEST_P(Queue, WhatCanNeverRunIsRefusedAtSubmitWithFieldValueAndRemedy) {
  bench.machine->unfit = {
      {"resources.nodes", "2", "want 1: local processes run on this machine alone", "set nodes = 1"}};
  const auto refused = bench.controller().submit(recipe_request("a"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.refusal().kind, common::Refusal::Kind::kInvalid);
  EXPECT_EQ(refused.refusal().text,
            "resources.nodes \"2\": want 1: local processes run on this machine alone; set nodes = 1");
  EXPECT_FALSE(bench.controller().submit_sweep(sweep_request("b", 3, 0)).ok());
  EXPECT_EQ(bench.controller().list({}).total(), 0);
}

}  // namespace
}  // namespace service::testing
