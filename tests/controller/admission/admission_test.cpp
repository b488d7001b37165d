// Goal: one answer to whether a job may start, from one list of reasons.
// Method: admission alone on a store in memory, with a job for which every reason holds at once.
#include "controller/admission/admission.h"

#include <gmock/gmock.h>

#include "controller/jobs/specs.h"
#include "spec/jobfile/job_keys.h"
#include "tests/controller/service/bench.h"
#include "tests/manual_clock.h"

namespace admission::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class AdmissionTest : public ::testing::Test {
 protected:
  /// Stores a job of sweep "s1", at most one at once.
  core::Job submitted() {
    muster::v1::JobSpec spec = service::testing::command_request("").spec();
    jobfile::set_slurm_text(spec, "partition", "main");
    spec.mutable_resources()->MergeFrom(wished);
    core::JobSubmitted body = jobs::job_submitted(spec, "ann");
    body.sweep = {"s1", 0, 1};
    core::Job blank;
    blank.id = store.next_job_id();
    const core::Event event{clock.wall(), body};
    const auto text = jobs::spec_to_text(spec);
    const store::Commit commit{event, store::shared(core::apply(blank, event)), "", text};
    store.append({&commit, 1});
    admission.follow(commit.applied->job);
    return commit.applied->job;
  }
  std::optional<common::Wait> enter(const core::Job& job) { return admission.enter(job, admission.limits(job)); }
  std::string why(const core::Job& job) {
    const auto wait = admission.why_not(job, clock.wall());
    return wait ? wait->why : "";
  }

  muster::v1::Resources wished;
  common::ManualClock clock;
  service::testing::CrashPoint never;
  std::map<core::JobId, int> unreadable;
  store::MemoryStore memory;
  service::testing::CrashingStore store{memory, never, unreadable};
  jobs::SpecCache specs{store};
  service::testing::FakeExecutor executor;
  std::shared_ptr<const partitions::PartitionPolicies> policies = std::make_shared<partitions::PartitionPolicies>();
  Admission admission{{clock, specs, executor, [this] { return policies; }}};
};

TEST_F(AdmissionTest, TheFirstReasonInTheListHasTheWord) {
  const auto first = submitted();
  ASSERT_FALSE(enter(first));
  auto job = submitted();
  job.state = core::JobState::kWaiting;
  job.next_attempt_at = clock.wall() + 10s;
  job.held = true;
  job.after = {{7, core::DependsOn::kSucceeded, false}};
  job.reason = "its own word";
  admission.expect({job.id, 1}, clock.monotonic() + 10s);
  admission.put_off(job.id, executors::LaunchLater{.why = "no room", .pause = 60s});
  EXPECT_EQ(admission.why_not(job, clock.wall())->action, "Release it when it may start: muster release 2");
  job.held = false;
  EXPECT_EQ(admission.why_not(job, clock.wall())->action, "It starts by itself. What it waits for: muster why 7");
  job.after.front().met = true;
  const auto backoff = admission.why_not(job, clock.wall());
  EXPECT_EQ(backoff->action, "It starts by itself. To start it at once: muster requeue 2");
  EXPECT_EQ(backoff->until, job.next_attempt_at);
  EXPECT_EQ(backoff->why, "its own word");
  EXPECT_EQ(enter(job), backoff) << "the runner has the same answer";
  clock.advance(10s);
  EXPECT_EQ(why(job), "waits for its turn: at most 1 of sweep s1 have an attempt at once");
  EXPECT_EQ(enter(job)->why, why(job));
  admission.settle(first.id);
  EXPECT_EQ(why(job), "Not started yet: no room");
  EXPECT_EQ(enter(job)->why, why(job));
  clock.advance(60s);
  EXPECT_EQ(why(job), "Not started yet: no room") << "that is what happened last";
  EXPECT_FALSE(enter(job)) << "but it is tried again";
  admission.forget({job.id, 1});
  EXPECT_EQ(why(job), "");
}

TEST_F(AdmissionTest, TheMachineHasTheWordAfterLimitsAndBeforeALaunchThatWasPutOff) {
  executor.machine().own.gpus = {{0, "GPU-a"}};
  Admission here{{clock, specs, executor, [this] { return policies; }}};
  wished.set_gpus_per_rank(1);
  auto first = submitted(), second = submitted(), third = submitted();
  for (auto* job : {&first, &second, &third}) {
    job->sweep = {};
    here.expect({job->id, 1}, clock.monotonic());
  }
  EXPECT_FALSE(here.enter(first, {}));
  ASSERT_TRUE(here.share(first.id));
  EXPECT_EQ(here.share(first.id)->gpus, std::vector<std::string>{"GPU-a"});
  EXPECT_EQ(here.share(first.id)->cores, 0U);
  const Limit none{"sweep:none", 0, "no slot", ""};
  EXPECT_EQ(here.enter(second, {none})->why, "no slot");
  EXPECT_TRUE(here.machine().waiting().empty()) << "one that waits for a slot is in nobody's way";
  here.put_off(second.id, executors::LaunchLater{.why = "no room", .pause = 60s});
  EXPECT_EQ(here.enter(second, {})->why, "waits for 1 GPU: job 1 has them");
  EXPECT_EQ(here.why_not(third, clock.wall())->why, "waits for 1 GPU: job 1 has them");
  here.settle(first.id);
  EXPECT_EQ(here.enter(second, {})->why, "Not started yet: no room");
  EXPECT_FALSE(here.enter(third, {})) << "what is put off is in nobody's way either";
  EXPECT_FALSE(here.share(second.id));
}

// The runner sleeps until next_by_time(). Without it the job waited until something else happened.
TEST_F(AdmissionTest, ALaunchThatEndsAfterItsAttemptDoesNotForgetTheNextOne) {
  const auto job = submitted();
  admission.expect({job.id, 1}, clock.monotonic());
  ASSERT_FALSE(enter(job));
  const auto due = clock.monotonic() + 1s;
  admission.expect({job.id, 2}, due);  // attempt 1 has failed already
  admission.forget({job.id, 1});
  EXPECT_EQ(admission.next_by_time(clock.monotonic()), due);
  admission.forget({job.id, 2});
  EXPECT_EQ(admission.next_by_time(clock.monotonic()), std::nullopt);
}

// It may have been wrong when the backoff was stored.
TEST_F(AdmissionTest, ABackoffIsOverWhateverTheMachinesClockIsSetTo) {
  auto job = submitted();
  job.state = core::JobState::kWaiting;
  job.next_attempt_at = clock.wall() + 1h;
  admission.expect({job.id, 1}, clock.monotonic() + 5s);
  EXPECT_TRUE(enter(job));
  clock.advance(5s);
  EXPECT_FALSE(enter(job));
}

TEST_F(AdmissionTest, WhatRunsOrHasEndedWaitsForNothing) {
  auto job = submitted();
  for (const auto state : {core::JobState::kRunning, core::JobState::kStopping, core::JobState::kSucceeded}) {
    job.state = state;
    job.held = true;
    EXPECT_FALSE(admission.why_not(job, clock.wall()));
  }
}

TEST_F(AdmissionTest, OneWhosePartitionCannotBeReadIsNotLetInAndHoldsNobodyUp) {
  executor.machine().queue = true;
  muster::v1::PartitionPolicy policy;
  policy.set_name("main");
  policy.set_max_running_jobs_per_user(1);
  policies = std::make_shared<partitions::PartitionPolicies>(std::vector{policy});
  auto first = submitted(), second = submitted(), third = submitted();
  for (auto* job : {&first, &second, &third}) job->sweep = {};
  unreadable[first.id] = 100;
  EXPECT_THROW(enter(first), store::Error);
  EXPECT_FALSE(enter(second));
  EXPECT_THAT(enter(third)->why, HasSubstr("max_running_jobs_per_user"));
  unreadable.clear();
  EXPECT_THAT(enter(first)->why, HasSubstr("max_running_jobs_per_user"));
  EXPECT_EQ(admission.count("main", "ann"), (Count{1, 3, 3}));
  EXPECT_EQ(admission.count("main", "").open, 3U);
}

}  // namespace
}  // namespace admission::testing
