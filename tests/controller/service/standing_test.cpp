// Goal: whoever asks about a job gets one answer: in a list, on its page, from `why`.
// Method: a controller in each situation a job can wait in; the three views side by side.
#include "controller/service/standing.h"
#include "controller/common/clock.h"

#include <gmock/gmock.h>

#include <array>

#include "controller/core/core_text.h"
#include "controller/service/views.h"
#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The words of the three views on a job, which must be the same.
class Told : public ::testing::Test {
 protected:
  muster::v1::Job told(core::JobId id) {
    const auto page = bench.job(id);
    const auto why = bench.why(id);
    muster::v1::Job row;
    const auto list = bench.controller().list({});
    for (const auto& job : list.jobs()) {
      if (job.id() == id) row = job;
    }
    const auto all = [](const auto& view) {
      return std::array{view.state(),  view.status(),           view.reason(),
                        view.action(), view.scheduler_reason(), view.expected_start()};
    };
    EXPECT_EQ(all(row), all(page));
    EXPECT_EQ(all(why), all(page));
    return page;
  }
  std::string number(core::JobId id) { return std::to_string(id); }
  core::JobId queued() {
    bench.machine->queue = true;
    return bench.submit(recipe_request("q"));
  }

  Bench bench;
};

TEST_F(Told, HeldBeforeItsFirstAttempt) {
  auto request = command_request("a");
  request.mutable_spec()->set_hold(true);
  const auto job = told(bench.submit(request));
  EXPECT_EQ(job.state(), "pending");
  EXPECT_EQ(job.status(), "held");
  EXPECT_EQ(job.reason(), "held by ada until released");
  EXPECT_EQ(job.action(), "Release it when it may start: muster release " + number(job.id()));
}

TEST_F(Told, HeldWhileItRuns) {
  const auto id = bench.submit(command_request("a"));
  EXPECT_EQ(told(id).reason(), "attempt 1: running");
  EXPECT_EQ(told(id).action(), "") << "nothing is to be done about what goes well";
  ASSERT_TRUE(bench.controller().hold(id, "ben").ok());
  EXPECT_EQ(told(id).status(), "running, held");
  EXPECT_EQ(told(id).reason(), "attempt 1: running; held by ben, no further attempt starts");
  EXPECT_EQ(told(id).action(), "Release it when a next attempt may start: muster release " + number(id));
  bench.executor().end({id, 1}, 0, {0, 0});
  bench.tick();
  EXPECT_EQ(told(id).status(), "succeeded") << "what held it is history";
}

TEST_F(Told, WaitingForItsTurnInASweep) {
  const auto ids = bench.submit_sweep("s", 3, 2);
  EXPECT_EQ(told(ids[2]).status(), "pending");
  EXPECT_EQ(told(ids[2]).reason(), "waits for its turn: at most 2 of sweep s1 have an attempt at once");
  EXPECT_EQ(told(ids[2]).action(), "It starts by itself.");
  EXPECT_EQ(told(ids[0]).reason(), "attempt 1: running");
  ASSERT_TRUE(bench.controller().hold(ids[2], "ben").ok());
  EXPECT_EQ(told(ids[2]).reason(), "held by ben until released");
}

TEST_F(Told, WaitingForAnotherJob) {
  const auto first = bench.submit(command_request("a"));
  auto after = command_request("b");
  after.mutable_spec()->add_after("succeeded:" + number(first));
  const auto job = told(bench.submit(after));
  EXPECT_EQ(job.reason(), "waiting for job " + number(first) + " to succeed");
  EXPECT_EQ(job.action(), "It starts by itself. What it waits for: muster why " + number(first));
}

// "in 10 min" was true for a second alone.
TEST_F(Told, WaitingForTheNextAttemptNamesItsTime) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_requeue()->set_backoff_initial_ms(600'000);
  request.mutable_spec()->mutable_requeue()->set_backoff_max_ms(600'000);
  const auto id = bench.submit(request);
  bench.executor().end({id, 1}, 0, {3, 0});
  bench.tick();
  const auto at = common::time_text(bench.clock.wall() + 600s);
  const auto job = told(id);
  EXPECT_EQ(job.status(), "waiting");
  EXPECT_EQ(job.reason(), "rank 0 exited with 3; attempt 2 starts at " + core::utc_text(bench.clock.wall() + 600s) +
                              " (failure 1 of 3)");
  EXPECT_EQ(job.action(), "It starts by itself. To start it at once: muster requeue " + number(id));
  EXPECT_EQ(job.expected_start(), at);
  EXPECT_EQ(job.next_attempt_at(), at);
  bench.clock.advance(300s);
  EXPECT_EQ(told(id).reason(), job.reason());
  EXPECT_THAT(bench.controller().events(id, 0, 100).back().text(), HasSubstr("attempt 2 starts in 10 min"));
}

TEST_F(Told, WaitingInTheSchedulersQueue) {
  const auto id = queued();
  bench.machine->word = executors::QueueWord{"101", "Priority", "Jobs of higher priority go first.", "Wait.",
                                             core::Time(core::Millis(1'700'000'000'000))};
  EXPECT_EQ(told(id).reason(), "Jobs of higher priority go first.");
  EXPECT_EQ(told(id).scheduler_reason(), "Priority");
  EXPECT_EQ(told(id).expected_start(), "2023-11-14T22:13:20.000Z");
  bench.machine->trouble =
      executors::Trouble{core::Time(core::Millis(1'700'000'000'000)), "squeue took longer than 5 s"};
  EXPECT_EQ(told(id).reason(), "scheduler unreachable since 2023-11-14 22:13:20 UTC: squeue took longer than 5 s");
  EXPECT_THAT(told(id).action(), HasSubstr("Nothing is lost"));
  ASSERT_TRUE(bench.controller().hold(id, "ben").ok());
  EXPECT_EQ(told(id).status(), "held");
  EXPECT_EQ(told(id).reason(), "held by ben until released");
}

TEST_F(Told, RunningAndSuspendedOrOutOfTheSchedulersReach) {
  const auto id = queued();
  bench.executor().tell(id, core::AttemptStarted{1, {"n1"}});
  bench.tick();
  EXPECT_EQ(told(id).reason(), "attempt 1: waiting for 2 ranks to join");
  executors::QueueWord word;
  word.scheduler_job = "101";
  word.suspended_since = core::Time(core::Millis(1'700'000'000'000));
  bench.machine->word = word;
  EXPECT_EQ(told(id).reason(),
            "attempt 1: waiting for 2 ranks to join; suspended in Slurm since 2023-11-14 22:13:20 UTC");
  EXPECT_THAT(told(id).action(), HasSubstr("scontrol resume 101"));
  bench.machine->word.reset();
  bench.machine->trouble =
      executors::Trouble{core::Time(core::Millis(1'700'000'000'000)), "squeue took longer than 5 s"};
  EXPECT_EQ(told(id).reason(),
            "attempt 1: waiting for 2 ranks to join; scheduler unreachable since 2023-11-14 22:13:20 UTC: squeue took "
            "longer than 5 s");
  EXPECT_THAT(told(id).action(), HasSubstr("Nothing is lost"));
  bench.machine->trouble.reset();
  EXPECT_EQ(told(id).reason(), "attempt 1: waiting for 2 ranks to join");
  EXPECT_EQ(told(id).action(), "");
}

TEST_F(Told, RunningAndNeverHeard) {
  const auto id = queued();
  bench.executor().tell(id, core::AttemptStarted{1, {"n1"}});
  bench.tick();
  executors::QueueWord word;
  word.unheard_for = 19s;
  bench.machine->word = word;
  EXPECT_EQ(told(id).reason(), "attempt 1: waiting for 2 ranks to join");
  bench.machine->word->unheard_for = 42s;
  EXPECT_EQ(told(id).reason(), "attempt 1: waiting for 2 ranks to join; none of its ranks has been heard in 42 s");
  EXPECT_EQ(told(id).action(),
            "Ranks look for musterd at head1:7600. Does each node know that name, and reach that port? If the nodes "
            "know this machine by another one, start musterd with --advertise HOST:PORT");
  bench.advertised.second = "this machine knows no head1";
  bench.machine->word->unheard_for = 5s;
  EXPECT_EQ(told(id).action(), "This machine knows no head1") << "it is known to be the reason, so it is told sooner";
}

TEST_F(Told, Failed) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_requeue()->set_max_failed(0);
  const auto id = bench.submit(request);
  bench.executor().end({id, 1}, 0, {3, 0});
  bench.tick();
  EXPECT_EQ(told(id).reason(), "rank 0 exited with 3; requeue.max_failed is 0");
  EXPECT_EQ(told(id).action(),
            "Look at the end of its log (muster logs 1 --tail 50; muster show 1 names the files). "
            "Correct the program, then: muster requeue 1. Or correct the job file and submit it again");
  auto recipe = recipe_request("b");
  recipe.mutable_spec()->mutable_requeue()->set_max_failed(0);
  const auto other = bench.submit(recipe);
  bench.executor().end({other, 1}, 0, {3, 0});
  bench.executor().end({other, 1}, 1, {3, 0});
  bench.tick();
  EXPECT_THAT(told(other).action(),
              HasSubstr(" names the files), then correct the job file and submit it again, or: muster requeue 2"));
}

TEST_F(Told, AListSaysOfASweepWhatAPageSays) {
  const auto ids = bench.submit_sweep("s", 2, 1);
  EXPECT_EQ(told(ids[0]).sweep().parallel(), 1U);
  const auto list = bench.controller().list({});
  for (const auto& row : list.jobs()) {
    EXPECT_EQ(row.sweep().SerializeAsString(), bench.job(row.id()).sweep().SerializeAsString());
  }
}

TEST_F(Told, WhatMayBeAskedOfItAndWhatThatDoes) {
  auto request = recipe_request("a");
  request.mutable_spec()->mutable_requeue()->set_max_failed(0);
  const auto id = bench.submit(request);
  bench.heartbeats({id, 1}, 2, 1);
  auto controls = bench.job(id).controls();
  EXPECT_EQ(controls.cancel_refusal() + controls.requeue_refusal() + controls.hold_refusal(), "");
  EXPECT_EQ(controls.release_refusal(), "job " + number(id) + " is not held");
  EXPECT_EQ(controls.time_limit_refusal(), "");
  EXPECT_THAT(controls.remove_refusal(), HasSubstr("is running: only a job that has ended can be removed"));
  EXPECT_EQ(bench.job(id).ranks_total(), 2U);
  EXPECT_EQ(controls.cancel_effect(),
            "Its ranks are asked to save and leave, then stopped. A cancelled job never comes back.");
  EXPECT_EQ(controls.requeue_effect(), "Its ranks are asked to save and leave. Then attempt 2 starts.");
  auto beat = Bench::beat({id, 1}, 0, 20);
  beat.add_checkpoints()->set_step(20);
  bench.send(beat);
  bench.executor().end({id, 1}, 0, {3, 0});
  bench.executor().end({id, 1}, 1, {0, 15});
  bench.tick();
  controls = bench.job(id).controls();
  EXPECT_EQ(controls.cancel_refusal(), bench.controller().cancel(id, "ada").refusal().text);
  EXPECT_EQ(controls.cancel_effect(), "");
  EXPECT_EQ(controls.remove_refusal(), "");
  EXPECT_THAT(controls.time_limit_refusal(), HasSubstr("its time limit can't be changed"));
  EXPECT_FALSE(bench.job(id).ranks(0).stopped_by_muster());
  EXPECT_TRUE(bench.job(id).ranks(1).stopped_by_muster());
  EXPECT_EQ(controls.requeue_effect(),
            "Attempt 2 starts now, from the checkpoint of step 20. Every budget is refilled.");
  const auto own = bench.submit(command_request("b"));
  bench.executor().end({own, 1}, 0, {3, 0});
  bench.tick();
  EXPECT_EQ(bench.job(own).controls().requeue_effect(), "Attempt 2 starts now.")
      << "where a program begins is its own affair, and no budget is refilled";
}

TEST_F(Told, AListHoldsOnlyJobsOfWhichTheRequestMayBeAsked) {
  const auto running = bench.submit(command_request("a"));
  const auto held = bench.submit(command_request("b"));
  const auto cancelled = bench.submit(command_request("c"));
  const auto failed = bench.submit(command_request("d"));
  ASSERT_TRUE(bench.controller().hold(held, "ada").ok());
  ASSERT_TRUE(bench.controller().cancel(cancelled, "ada").ok());
  bench.executor().end({cancelled, 1}, 0, {0, 15});
  bench.executor().end({failed, 1}, 0, {core::kExitNeverRequeue, 0});
  bench.tick();
  const auto listed = [&](const std::string& may, std::vector<std::string> states = {}) {
    muster::v1::ListRequest request;
    request.set_may(may);
    request.mutable_states()->Assign(states.begin(), states.end());
    std::vector<core::JobId> ids;
    const auto response = bench.controller().list(request);
    for (const auto& job : response.jobs()) ids.push_back(job.id());
    return ids;
  };
  EXPECT_THAT(listed(""), ElementsAre(failed, cancelled, held, running));
  EXPECT_THAT(listed("cancel"), ElementsAre(held, running));
  EXPECT_THAT(listed("requeue"), ElementsAre(failed, held, running));
  EXPECT_THAT(listed("requeue", {"failed", "cancelled"}), ElementsAre(failed));
  EXPECT_THAT(listed("release"), ElementsAre(held));
  EXPECT_THAT(listed("hold"), ElementsAre(running));
  EXPECT_THAT(listed("limit"), ElementsAre(held, running));
  EXPECT_THAT(listed("rm"), ElementsAre(failed, cancelled));
  EXPECT_THAT(listed("rm", {"running"}), ElementsAre());
}

}  // namespace
}  // namespace service::testing
