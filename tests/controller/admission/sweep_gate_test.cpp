// Goal: a sweep's place is kept as long as an attempt may be there, and no longer.
// Method: the gate alone, told in an order that threads can bring about.
#include "admission/sweep_gate.h"

#include <gtest/gtest.h>

namespace runtime {
namespace {

core::Job pending(core::JobId id) {
  core::Job job;
  job.id = id;
  job.sweep = {"a", 0, 1};
  return job;
}

/// Its first attempt waits alone in a scheduler's queue, which holds it for a person.
core::Job held_in_queue(SweepGate& gate, core::JobId id) {
  auto job = pending(id);
  core::Attempt attempt;
  attempt.number = 1;
  attempt.state = core::AttemptState::kQueued;
  attempt.handle = "Slurm job 7";
  attempt.queued_at = core::Time(core::Millis(1));
  job.attempts = {attempt};
  job.state = core::JobState::kQueued;
  job.held = true;
  gate.follow(job);
  gate.hold(job);
  return job;
}

TEST(SweepGate, OneThatIsCancelledOnItsWayKeepsItsPlaceUntilItsLaunchIsOver) {
  SweepGate gate;
  auto job = pending(1);
  EXPECT_TRUE(gate.enter(job, false, 0));
  job.state = core::JobState::kCancelled;
  gate.follow(job);
  EXPECT_FALSE(gate.enter(pending(2), false, 0)) << "the queue may have it";
  gate.leave(1);
  EXPECT_TRUE(gate.enter(pending(2), false, 0));
}

TEST(SweepGate, AReleaseThatIsLateTakesNoPlace) {
  SweepGate gate;
  auto job = held_in_queue(gate, 1);
  job.held = false;
  gate.follow(job);
  const auto before_its_end = job;
  job.attempts.front().state = core::AttemptState::kEnded;
  job.state = core::JobState::kCancelled;
  gate.follow(job);
  EXPECT_TRUE(gate.let_go(before_its_end)) << "there is nothing to wait for";
  EXPECT_TRUE(gate.enter(pending(2), false, 0));
}

// Which of them was let go before is not known.
TEST(SweepGate, OfSeveralReleasedBeforeARestartOneIsLetGo) {
  SweepGate gate;
  std::vector<core::Job> jobs;
  for (const core::JobId id : {1, 2}) {
    jobs.push_back(held_in_queue(gate, id));
    jobs.back().held = false;
  }
  SweepGate restarted;
  for (const auto& job : jobs) restarted.follow(job);
  for (const auto& job : jobs) restarted.release(job);
  EXPECT_TRUE(restarted.let_go(jobs[0]));
  EXPECT_FALSE(restarted.let_go(jobs[1]));
  EXPECT_TRUE(restarted.let_go(jobs[0])) << "asked again";
}

}  // namespace
}  // namespace runtime
