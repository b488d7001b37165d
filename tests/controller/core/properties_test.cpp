// Goal: whatever happens in whatever order, the promises of controller/core/apply.h hold.
// Method: seeded random events; each promise is checked after each event.
#include <gtest/gtest.h>

#include <algorithm>

#include "controller/core/requeue_policy.h"
#include "tests/controller/core/random_events.h"

namespace test {
namespace {

constexpr std::uint32_t kSeeds = 1000;
constexpr int kEventsPerLife = 120;

bool is_manual_requeue(const core::Event& event) {
  return std::holds_alternative<core::RequeueRequested>(event.body);
}

void check_shape(const core::Job& job) {
  const auto open = std::ranges::count_if(
      job.attempts, [](const core::Attempt& attempt) { return attempt.state != core::AttemptState::kEnded; });
  const bool active = job.state == core::JobState::kQueued || job.state == core::JobState::kRunning ||
                      job.state == core::JobState::kStopping;
  EXPECT_EQ(open, active ? 1 : 0);
  if (active) {
    const bool draining = job.current()->state == core::AttemptState::kDraining;
    EXPECT_EQ(draining, job.state == core::JobState::kStopping);
    EXPECT_EQ(draining, job.current()->cause != core::Cause::kNone);
    const bool queued = job.current()->state == core::AttemptState::kQueued;
    EXPECT_EQ(queued, job.state == core::JobState::kQueued);
    EXPECT_TRUE(!queued || (job.current()->queued_at && !job.current()->started_at));
    EXPECT_TRUE(job.dependencies_met());
  }
  for (std::size_t i = 0; i < job.attempts.size(); ++i) {
    const core::Attempt& attempt = job.attempts[i];
    EXPECT_EQ(attempt.number, i + 1);
    EXPECT_EQ(attempt.state == core::AttemptState::kEnded, attempt.ended_at.has_value());
    if (attempt.state == core::AttemptState::kEnded) {
      EXPECT_NE(attempt.cause, core::Cause::kNone);
    }
    EXPECT_FALSE(attempt.reason.empty());
    EXPECT_FALSE(attempt.reason_started.empty());
    const bool works = attempt.state == core::AttemptState::kStarting || attempt.state == core::AttemptState::kRunning;
    EXPECT_TRUE(works || !attempt.suspicion) << "only what works is suspected";
  }
  EXPECT_EQ(is_ended(job.state), job.ended_at.has_value());
  EXPECT_EQ(job.state == core::JobState::kWaiting, job.next_attempt_at.has_value());
  EXPECT_FALSE(job.reason.empty());
}

void check_budgets(const core::Job& job) {
  for (const auto& [cause, count] : job.spent) {
    const auto limit = core::budget(job.policy, cause);
    ASSERT_TRUE(limit) << to_string(cause) << " has no budget to spend";
    EXPECT_LE(count, *limit + (job.state == core::JobState::kFailed ? 1 : 0));
  }
}

void check_step(const core::Job& before, const core::Event& event, const core::Applied& applied) {
  const core::Job& after = applied.job;
  EXPECT_EQ(after.version, before.version + 1);
  EXPECT_EQ(after.id, before.id);
  EXPECT_FALSE(applied.text.empty());
  if (is_ended(before.state) && after.state != before.state) {
    EXPECT_EQ(before.state, core::JobState::kFailed);
    EXPECT_TRUE(is_manual_requeue(event));
  }
  if (before.cancel_requested) {
    EXPECT_TRUE(after.cancel_requested);
    EXPECT_TRUE(after.state == core::JobState::kStopping || after.state == core::JobState::kCancelled);
    EXPECT_EQ(after.attempts.size(), before.attempts.size());
  }
  ASSERT_GE(after.attempts.size(), before.attempts.size());
  ASSERT_LE(after.attempts.size(), before.attempts.size() + 1);
  for (std::size_t i = 0; i < before.attempts.size(); ++i) {
    if (before.attempts[i].cause != core::Cause::kNone) {
      EXPECT_EQ(after.attempts[i].cause, before.attempts[i].cause) << "the first cause wins";
      EXPECT_EQ(after.attempts[i].reason, before.attempts[i].reason);
    }
    if (before.attempts[i].state == core::AttemptState::kEnded) {
      EXPECT_EQ(after.attempts[i], before.attempts[i]);
    }
    if (i + 1 < before.attempts.size()) {
      EXPECT_EQ(after.attempts[i], before.attempts[i]) << "only the newest changes";
    }
  }
}

void check_actions(const core::Job& before, const core::Event& event, const core::Applied& applied) {
  const core::Job& after = applied.job;
  for (const auto& action : applied.actions) {
    if (const auto* start = std::get_if<core::StartAttempt>(&action)) {
      EXPECT_EQ(start->attempt, after.attempts.size() + 1);
      EXPECT_GE(start->not_before, event.at);
      EXPECT_LE(start->not_before - event.at, std::max(after.policy.backoff_max, core::Millis{0}));
      EXPECT_TRUE(after.may_start()) << "nothing starts while it is held or waits for others";
    } else if (const auto* stop = std::get_if<core::StopAttempt>(&action)) {
      EXPECT_FALSE(stop->reason.empty());
    } else if (const auto* hold = std::get_if<core::HoldAttempt>(&action)) {
      EXPECT_EQ(hold->attempt, after.attempts.size());
      EXPECT_EQ(hold->hold, after.held);
      EXPECT_EQ(after.state, core::JobState::kQueued);
    } else if (std::holds_alternative<core::RemoveFiles>(action)) {
      EXPECT_TRUE(after.removed_at.has_value());
      EXPECT_TRUE(core::is_ended(after.state)) << "what runs is not removed";
    } else {
      EXPECT_EQ(std::get<core::LimitAttempt>(action).time_limit, after.time_limit_asked.value_or(after.time_limit));
      EXPECT_EQ(std::get<core::LimitAttempt>(action).attempt, after.attempts.size());
    }
  }
  const auto asks_start = std::ranges::any_of(
      applied.actions, [](const core::Action& action) { return std::holds_alternative<core::StartAttempt>(action); });
  const auto may_start = [](const core::Job& job) {
    return job.may_start() && (job.state == core::JobState::kWaiting || job.state == core::JobState::kPending);
  };
  if (may_start(after) && !may_start(before)) {
    EXPECT_TRUE(asks_start) << "a job that may start is never forgotten";
  }
  if (asks_start) {
    EXPECT_TRUE(after.state == core::JobState::kWaiting || after.state == core::JobState::kPending);
  }
  if (const auto* launched = std::get_if<core::AttemptLaunched>(&event.body)) {
    const bool watched = after.current() != nullptr && after.current()->number == launched->attempt &&
                         after.current()->state != core::AttemptState::kEnded;
    const bool stopped = std::ranges::any_of(applied.actions, [&](const core::Action& action) {
      const auto* stop = std::get_if<core::StopAttempt>(&action);
      return stop != nullptr && stop->attempt == launched->attempt;
    });
    EXPECT_NE(watched, stopped) << "nothing runs unwatched, nothing watched is stopped by its own launch";
  }
}

TEST(JobProperties, HoldForAnyEventsInAnyOrder) {
  std::map<core::JobState, int> ends;
  for (std::uint32_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomEvents random(seed);
    Story story(1);
    story.tell(random.submission());
    for (int i = 0; i < kEventsPerLife && !testing::Test::HasFailure(); ++i) {
      const core::Job before = story.job;
      story.wait(random.pause()).tell(random.next(story.job));
      SCOPED_TRACE("event " + std::to_string(i) + ": " + std::string(type_name(story.events.back().body)));
      check_shape(story.job);
      check_budgets(story.job);
      check_step(before, story.events.back(), story.last);
      check_actions(before, story.events.back(), story.last);
    }
    core::Job replayed;
    replayed.id = 1;
    for (const auto& event : story.events) replayed = core::apply(replayed, event).job;
    EXPECT_EQ(replayed, story.job) << "replaying the log rebuilds the state";
    ++ends[story.job.state];
  }
  for (const core::JobState state : core::kAllJobStates) {
    if (state != core::JobState::kPending) {
      EXPECT_GT(ends[state], 0) << "no life ended " << to_string(state) << ": the generator is too tame";
    }
  }
}

TEST(JobProperties, EventsBeforeAnySubmissionDoNoHarm) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    RandomEvents random(seed);
    Story story(1);
    for (int i = 0; i < 30; ++i) story.tell(random.next(story.job));
    EXPECT_EQ(story.job.version, 30);
  }
}

}  // namespace
}  // namespace test
