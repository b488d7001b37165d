// Goal: a job that waits (in a queue, for a person, for another job) starts as soon as it may, and only once.
// Method: literal event logs, replayed; each test is one story.
#include <gtest/gtest.h>

#include "tests/controller/core/sentences.h"

namespace test {
namespace {

class DependencyStory : public ToldStories {};
class HastyStory : public ToldStories {};
class HoldStory : public ToldStories {};
class LimitStory : public ToldStories {};
class NodeStory : public ToldStories {};
class QueueStory : public ToldStories {};

using namespace std::chrono_literals;
using core::AttemptState;
using core::Cause;
using core::JobState;

core::AttemptLaunched in_queue(core::AttemptNumber number) {
  return {number, "Slurm job " + std::to_string(10 + number), "", {}, true};
}

Story queued(core::JobSubmitted job = submitted()) {
  Story story;
  story.tell(std::move(job)).wait(1s).tell(in_queue(1));
  return story;
}

/// Attempt `number` has a rank on each of two nodes, and has run for `time`.
void run_on_nodes(Story& story, core::AttemptNumber number, core::Millis time = 1min) {
  story.tell_all(core::AttemptStarted{number, {"n1", "n2"}}, core::RankJoined{number, 0, "n1", 11},
                 core::RankJoined{number, 1, "n2", 12});
  story.wait(time);
}

Story on_nodes() {
  Story story = queued();
  run_on_nodes(story, 1);
  return story;
}

TEST_F(QueueStory, AJobWaitsInTheQueueThenRunsAndSucceeds) {
  Story story = queued();
  EXPECT_EQ(story.job.state, JobState::kQueued);
  EXPECT_EQ(story.attempt(1).state, AttemptState::kQueued);
  EXPECT_EQ(story.attempt(1).queued_at, at_ms(1000));
  EXPECT_EQ(story.attempt(1).started_at, std::nullopt);
  story.wait(1h).tell(core::AttemptStarted{1, {"n1", "n1"}});
  EXPECT_EQ(story.job.state, JobState::kRunning);
  EXPECT_EQ(story.attempt(1).state, AttemptState::kStarting);
  EXPECT_EQ(story.attempt(1).started_at, story.now);
  EXPECT_EQ(story.attempt(1).ranks[1].node, "n1");
  story.tell_all(core::RankJoined{1, 0, "n1", 1}, core::RankJoined{1, 1, "n1", 2});
  EXPECT_EQ(story.attempt(1).state, AttemptState::kRunning);
  story.tell_all(exited(1, 0, 0), exited(1, 1, 0));
  EXPECT_EQ(story.job.state, JobState::kSucceeded);
}

TEST_F(QueueStory, ACommandRunsFromTheSchedulersWordOn) {
  auto command = submitted();
  command.is_command = true;
  Story story = queued(command);
  EXPECT_EQ(story.attempt(1).ranks[0].state, core::RankState::kStarting);
  story.tell(core::AttemptStarted{1, {"n1", "n2"}});
  EXPECT_EQ(story.attempt(1).state, AttemptState::kRunning);
  EXPECT_EQ(story.attempt(1).running_at, story.now);
}

TEST_F(QueueStory, ARankThatSpeaksBeforeTheSchedulerDoesMeansThatItHasStarted) {
  Story story = queued();
  story.tell(core::RankJoined{1, 0, "n1", 11});
  EXPECT_EQ(story.job.state, JobState::kRunning);
  EXPECT_EQ(story.attempt(1).started_at, story.now);
  story.wait(1s).tell(core::AttemptStarted{1, {"other", "n2"}});
  EXPECT_EQ(story.attempt(1).started_at, story.now - 1s) << "it began when the rank spoke";
  EXPECT_EQ(story.attempt(1).ranks[0].node, "n1") << "the rank knows best where it is";
  EXPECT_EQ(story.attempt(1).ranks[1].node, "n2");
}

// The scheduler's list of nodes need not be in the order of the ranks.
TEST_F(QueueStory, WhatStandsBesideTheRanksKnowsBestWhereTheyAre) {
  Story story = queued();
  story.tell(core::AttemptStarted{1, {"n1", "n2"}});
  const auto began = story.now;
  story.wait(1s).tell(core::AttemptStarted{1, {"n2", ""}, true});
  EXPECT_EQ(story.attempt(1).ranks[0].node, "n2");
  EXPECT_EQ(story.attempt(1).ranks[1].node, "n2") << "nothing new is known of it";
  EXPECT_EQ(story.attempt(1).started_at, began);
}

TEST_F(QueueStory, CancelledInTheQueueItLeavesAndNeverComesBack) {
  Story story = queued();
  story.tell(core::CancelRequested{"ben"});
  EXPECT_EQ(story.job.state, JobState::kStopping);
  EXPECT_TRUE(story.last.effect.from_queue);
  EXPECT_EQ(story.action<core::StopAttempt>()->attempt, 1U);
  // The scheduler gave the attempt its nodes at the same moment.
  story.tell(core::AttemptStarted{1, {"n1", "n2"}}).tell(core::RankJoined{1, 0, "n1", 11});
  EXPECT_EQ(story.job.state, JobState::kStopping);
  story.tell(core::AttemptGone{1, Cause::kFailed, "exit 15"});
  EXPECT_EQ(story.job.state, JobState::kCancelled);
  EXPECT_EQ(story.attempt(1).cause, Cause::kCancelled);
}

TEST_F(QueueStory, AnAttemptThatIsGoneFromTheQueueIsChargedAndTriedAgain) {
  Story story = queued();
  story.tell(core::AttemptGone{1, Cause::kControllerLost, "the scheduler knows nothing of it"});
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now + 1s}));
  story.wait(1s).tell(in_queue(2));
  EXPECT_EQ(story.job.state, JobState::kQueued);
  EXPECT_EQ(story.attempt(1).cause, Cause::kControllerLost);
}

TEST_F(QueueStory, CancelledInTheSchedulerItselfItStaysAway) {
  Story story = queued();
  story.tell(core::AttemptGone{1, Cause::kCancelled, "cancelled by root with scancel"});
  EXPECT_EQ(story.job.state, JobState::kCancelled);
}

TEST_F(QueueStory, APreemptionToldBeforeTheRanksLeaveIsItsCause) {
  Story story = on_nodes();
  story.tell(core::AttemptStopping{1, Cause::kPreempted, "preempted by a job of partition high"});
  EXPECT_EQ(*story.action<core::StopAttempt>(), (core::StopAttempt{1, true, "preempted by a job of partition high"}));
  story.tell_all(exited(1, 0, 99), killed(1, 1, 9));
  EXPECT_EQ(story.attempt(1).cause, Cause::kPreempted);
  EXPECT_EQ(story.job.spent.at(Cause::kPreempted), 1U);
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now})) << "at once";
}

TEST_F(QueueStory, AVictimThatHadJustStartedIsNotSlowedDown) {
  Story story = queued();
  run_on_nodes(story, 1, 1s);
  story.tell(core::AttemptStopping{1, Cause::kPreempted, ""}).tell_all(exited(1, 0, 99), exited(1, 1, 99));
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now}));
}

TEST_F(QueueStory, TheSchedulersWordAfterTheFirstCauseChangesNothing) {
  Story story = on_nodes();
  story.tell(killed(1, 1, 11)).tell(core::AttemptStopping{1, Cause::kPreempted, "preempted"});
  EXPECT_TRUE(story.last.actions.empty());
  story.tell(killed(1, 0, 15));
  EXPECT_EQ(story.attempt(1).cause, Cause::kFailed);
}

TEST_F(QueueStory, StoppingWithoutACauseIsAPreemption) {
  Story story = on_nodes();
  story.tell(core::AttemptStopping{1, Cause::kNone, ""});
  EXPECT_EQ(story.attempt(1).cause, Cause::kPreempted);
}

TEST_F(QueueStory, RequeuedInTheSchedulerItComesBackWithoutSpendingABudget) {
  Story story = on_nodes();
  for (core::AttemptNumber number = 1; number <= 20; ++number) {
    story.tell(core::CheckpointSaved{number, static_cast<core::Step>(number)});
    story.tell(core::AttemptStopping{number, Cause::kRequeued, "requeued with scontrol"});
    story.tell_all(exited(number, 0, 99), exited(number, 1, 99));
    ASSERT_EQ(story.job.state, JobState::kWaiting);
    EXPECT_TRUE(story.job.spent.empty());
    EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{number + 1, story.now}));
    story.tell(in_queue(number + 1));
    run_on_nodes(story, number + 1, 1s);
  }
}

// The scheduler starts the attempt and requeues it before it has made progress, again and again.
TEST_F(QueueStory, RequeuedInTheSchedulerWithoutProgressItComesBackLaterEachTime) {
  Story story = on_nodes();
  const auto requeued = [&](core::AttemptNumber number) {
    story.tell(core::AttemptStopping{number, Cause::kRequeued, "requeued with scontrol"});
    story.tell_all(exited(number, 0, 99), exited(number, 1, 99));
    return story.action<core::StartAttempt>()->not_before - story.now;
  };
  for (const auto& [number, wait] :
       std::vector<std::pair<core::AttemptNumber, core::Millis>>{{1, 1s}, {2, 2s}, {3, 4s}, {4, 8s}}) {
    EXPECT_EQ(requeued(number), wait) << number;
    EXPECT_TRUE(story.job.spent.empty());
    story.tell(in_queue(number + 1));
    run_on_nodes(story, number + 1, 1s);
  }
  EXPECT_EQ(story.job.unhealthy_ends, 4U);
  story.tell(core::CheckpointSaved{5, 1});
  EXPECT_EQ(requeued(5), 0s) << "it has saved";
  story.tell(in_queue(6));
  run_on_nodes(story, 6, story.job.policy.healthy_after);
  EXPECT_EQ(requeued(6), 0s) << "it has run for long";
}

// The prolog fails on one node after the other, and Slurm drains each of them.
TEST_F(NodeStory, ARunThatItsNodesCannotStartCostsTheBudgetOfLostNodesAndComesBackLaterEachTime) {
  Story story = queued();
  for (core::AttemptNumber number = 1; number <= 10; ++number) {
    story.tell(core::NodeLost{number, "n" + std::to_string(number), 0s, "Slurm could not start the job on it"});
    story.tell(core::AttemptGone{number, Cause::kNodeFailed, "launch failed"});
    ASSERT_EQ(story.job.state, JobState::kWaiting) << number;
    const auto wait = number == 1 ? 0ms : std::min(core::Millis(1000 << (number - 2)), story.job.policy.backoff_max);
    EXPECT_EQ(story.action<core::StartAttempt>()->not_before - story.now, wait) << number;
    story.tell(in_queue(number + 1));
  }
  story.tell(core::AttemptGone{11, Cause::kNodeFailed, "launch failed"});
  EXPECT_EQ(story.job.state, JobState::kFailed) << "no more than its budget";
}

TEST_F(NodeStory, ALostNodeCostsItsOwnBudgetAndNoTime) {
  Story story = on_nodes();
  story.tell(core::NodeLost{1, "n2", 3200ms});
  EXPECT_EQ(story.attempt(1).ranks[0].state, core::RankState::kRunning);
  EXPECT_EQ(story.attempt(1).ranks[1].state, core::RankState::kSilent);
  EXPECT_EQ(*story.action<core::StopAttempt>(),
            (core::StopAttempt{1, false, "node n2 lost: nothing on it was heard for 3.2 s"}))
      << "the others cannot finish their step";
  story.tell(killed(1, 0, 15)).tell(core::AttemptGone{1, Cause::kNodeFailed, "NODE_FAIL"});
  EXPECT_EQ(story.attempt(1).cause, Cause::kNodeFailed);
  EXPECT_EQ(story.job.spent, (std::map<Cause, std::uint32_t>{{Cause::kNodeFailed, 1}}));
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now})) << "that node is left out";
  EXPECT_TRUE(story.last.effect.is_charged);
}

TEST_F(NodeStory, LostNodesAreBoundedToo) {
  core::RequeuePolicy policy;
  policy.max_node_failed = 1;
  Story story;
  story.tell(submitted(2, policy));
  for (core::AttemptNumber number : {1U, 2U}) {
    story.tell(in_queue(number));
    run_on_nodes(story, number);
    story.tell(core::NodeLost{number, "n1", 3s}).tell(core::AttemptGone{number, Cause::kNodeFailed, ""});
  }
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kBudget);
}

TEST_F(HoldStory, AJobHeldAtItsSubmissionStartsWhenReleased) {
  auto job = submitted();
  job.held = true;
  Story story;
  story.tell(job);
  EXPECT_TRUE(story.last.actions.empty());
  EXPECT_EQ(story.job.state, JobState::kPending);
  story.wait(1h).tell(core::ReleaseRequested{"ben"});
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{1, story.now}));
}

TEST_F(HoldStory, HeldBeforeItsFirstAttemptNothingStarts) {
  Story story;
  story.tell(submitted()).tell(core::HoldRequested{"ben"});
  EXPECT_FALSE(story.job.may_start());
  EXPECT_EQ(story.job.held_by, "ben");
  // The attempt was on its way to the queue.
  story.tell(in_queue(1));
  EXPECT_EQ(*story.action<core::HoldAttempt>(), (core::HoldAttempt{1, true}));
}

TEST_F(HoldStory, InTheQueueTheSchedulerHoldsIt) {
  Story story = queued();
  story.tell(core::HoldRequested{"ben"});
  EXPECT_EQ(*story.action<core::HoldAttempt>(), (core::HoldAttempt{1, true}));
  EXPECT_EQ(story.job.state, JobState::kQueued);
  story.tell(core::HoldRequested{"carl"});
  EXPECT_TRUE(story.last.actions.empty());
  EXPECT_EQ(story.job.held_by, "ben");
  story.tell(core::ReleaseRequested{"ben"});
  EXPECT_EQ(*story.action<core::HoldAttempt>(), (core::HoldAttempt{1, false}));
}

TEST_F(HoldStory, WhileItRunsItGoesOnAndNoOtherStarts) {
  Story story = on_nodes();
  story.tell(core::HoldRequested{"ben"});
  EXPECT_TRUE(story.last.actions.empty());
  EXPECT_EQ(story.job.state, JobState::kRunning);
  story.tell_all(exited(1, 0, 1), killed(1, 1, 15));
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_TRUE(story.last.actions.empty());
  story.wait(300ms).tell(core::ReleaseRequested{"ben"});
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now + 700ms}))
      << "what is left of the backoff";
}

TEST_F(HoldStory, WhileItWaitsTheBackoffRunsOut) {
  Story story = on_nodes();
  story.tell_all(exited(1, 0, 1), killed(1, 1, 15), core::HoldRequested{"ben"});
  EXPECT_TRUE(story.last.actions.empty());
  story.tell(core::RequeueRequested{"ben"});
  EXPECT_TRUE(story.last.actions.empty()) << "held is held";
  story.wait(1h).tell(core::ReleaseRequested{"ben"});
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now}));
}

TEST_F(HoldStory, AHeldJobThatWasCancelledIsOver) {
  auto job = submitted();
  job.held = true;
  Story story;
  story.tell(job).tell(core::CancelRequested{"ben"});
  EXPECT_EQ(story.job.state, JobState::kCancelled);
  EXPECT_EQ(core::refusal_of(story.job, core::ReleaseRequested{}), core::Refusal::kEnded);
  EXPECT_EQ(core::refusal_of(story.job, core::HoldRequested{}), core::Refusal::kEnded);
  story.tell(core::ReleaseRequested{"ben"});
  EXPECT_TRUE(story.last.actions.empty());
  EXPECT_EQ(story.job.state, JobState::kCancelled);
}

Story dependent(std::vector<core::Dependency> others) {
  auto job = submitted();
  job.after = std::move(others);
  Story story;
  story.tell(job);
  EXPECT_TRUE(story.last.actions.empty());
  return story;
}

TEST_F(DependencyStory, AJobStartsWhenTheOneItWaitsForHasSucceeded) {
  Story story = dependent({{5, core::DependsOn::kSucceeded}});
  story.wait(1h).tell(core::DependencyEnded{6, JobState::kSucceeded});
  EXPECT_TRUE(story.last.actions.empty()) << "that is another one";
  story.tell(core::DependencyEnded{5, JobState::kRunning});
  EXPECT_TRUE(story.last.actions.empty()) << "that is no end";
  story.tell(core::DependencyEnded{5, JobState::kSucceeded});
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{1, story.now}));
  story.tell(core::DependencyEnded{5, JobState::kFailed});
  EXPECT_EQ(story.job.state, JobState::kPending) << "a second end of it changes nothing";
  EXPECT_TRUE(story.last.actions.empty());
}

TEST_F(DependencyStory, OneThatCanNeverBeMetEndsTheJobWithTheReason) {
  for (const auto ended : {JobState::kFailed, JobState::kCancelled}) {
    Story story = dependent({{5, core::DependsOn::kSucceeded}});
    story.tell(core::DependencyEnded{5, ended});
    EXPECT_EQ(story.job.state, JobState::kCancelled);
    EXPECT_EQ(core::refusal_of(story.job, core::RequeueRequested{}), core::Refusal::kCancelled);
  }
}

TEST_F(DependencyStory, EachConditionIsMetByItsOwnEnds) {
  using On = core::DependsOn;
  const std::vector<std::tuple<On, JobState, bool>> table = {
      {On::kSucceeded, JobState::kSucceeded, true},  {On::kSucceeded, JobState::kFailed, false},
      {On::kSucceeded, JobState::kCancelled, false}, {On::kFailed, JobState::kSucceeded, false},
      {On::kFailed, JobState::kFailed, true},        {On::kFailed, JobState::kCancelled, true},
      {On::kEnded, JobState::kSucceeded, true},      {On::kEnded, JobState::kFailed, true},
      {On::kEnded, JobState::kCancelled, true}};
  for (const auto& [on, ended, met] : table) {
    Story story = dependent({{5, on}});
    story.tell(core::DependencyEnded{5, ended});
    EXPECT_EQ(story.job.may_start(), met) << to_string(on) << " " << to_string(ended);
    EXPECT_EQ(story.action<core::StartAttempt>() != nullptr, met);
  }
}

TEST_F(DependencyStory, OfTwoBothMustBeMet) {
  Story story = dependent({{5, core::DependsOn::kSucceeded}, {6, core::DependsOn::kEnded}});
  story.tell(core::DependencyEnded{6, JobState::kFailed});
  EXPECT_TRUE(story.last.actions.empty());
  story.tell(core::DependencyEnded{5, JobState::kSucceeded});
  EXPECT_NE(story.action<core::StartAttempt>(), nullptr);
}

TEST_F(DependencyStory, OneThatEndedBeforeTheSubmissionCountsAsSoonAsItIsTold) {
  Story story = dependent({{5, core::DependsOn::kEnded}});
  story.tell(core::DependencyEnded{5, JobState::kCancelled});
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{1, at_ms(0)}));
}

TEST_F(DependencyStory, AHeldJobStillWaitsForItsRelease) {
  auto job = submitted();
  job.held = true;
  job.after = {{5, core::DependsOn::kSucceeded, false}};
  Story story;
  story.tell(job);
  story.tell(core::DependencyEnded{5, JobState::kSucceeded});
  EXPECT_TRUE(story.last.actions.empty());
  story.tell(core::ReleaseRequested{"anna"});
  EXPECT_NE(story.action<core::StartAttempt>(), nullptr);
}

TEST_F(DependencyStory, WhatWasLaunchedBeforeItMayRunIsStopped) {
  Story story = dependent({{5, core::DependsOn::kSucceeded}});
  story.tell(in_queue(1));
  EXPECT_EQ(story.job.state, JobState::kPending);
  EXPECT_EQ(story.action<core::StopAttempt>()->attempt, 1U);
}

TEST_F(LimitStory, AChangedTimeLimitReachesTheAttemptAndThoseAfterIt) {
  Story story = queued();
  for (const auto limit : {2h, 1h, 0h}) {
    story.tell(core::TimeLimitChanged{"ben", limit});
    EXPECT_EQ(*story.action<core::LimitAttempt>(), (core::LimitAttempt{1, limit}));
    EXPECT_NE(story.job.time_limit, limit) << "not before the scheduler has taken it";
    story.tell(core::TimeLimitAnswered{1, limit, ""});
    EXPECT_EQ(story.job.time_limit, limit);
    EXPECT_FALSE(story.job.time_limit_asked);
  }
  run_on_nodes(story, 1);
  story.tell(core::TimeLimitChanged{"ben", 3h});
  EXPECT_NE(story.action<core::LimitAttempt>(), nullptr) << "one that runs, too";
  story.tell(killed(1, 0, 9)).tell(core::TimeLimitChanged{"ben", 4h});
  EXPECT_TRUE(story.last.actions.empty()) << "it is leaving";
  EXPECT_EQ(story.job.time_limit, 4h);
  story.tell(core::TimeLimitChanged{"ben", -1h});
  EXPECT_EQ(story.job.time_limit, 0h);
}

// The new limit counts once the scheduler has taken it.
TEST_F(LimitStory, ATimeLimitChangedWhileTheAttemptWasOnItsWayIsAskedOfTheScheduler) {
  for (const auto told : {1h, 0h}) {
    Story story;
    story.tell(submitted()).tell(core::TimeLimitChanged{"ben", 4h}).tell(core::HoldRequested{"ben"});
    auto launched = in_queue(1);
    launched.time_limit = told;
    story.tell(launched);
    EXPECT_EQ(story.last.actions, (std::vector<core::Action>{core::LimitAttempt{1, 4h}, core::HoldAttempt{1, true}}));
    EXPECT_EQ(story.job.time_limit, told);
    EXPECT_EQ(story.job.time_limit_asked, 4h);
  }
  for (const core::Millis told : {core::Millis(4h), core::Millis(-1)}) {
    Story story;
    story.tell(submitted()).tell(core::TimeLimitChanged{"ben", 4h});
    auto launched = in_queue(1);
    launched.time_limit = told;
    story.tell(launched);
    EXPECT_TRUE(story.last.actions.empty()) << "the same, or not known";
    EXPECT_EQ(story.job.time_limit, 4h);
  }
}

TEST_F(LimitStory, ATimeLimitThatTheSchedulerRefusesIsNotShownAsInForce) {
  Story story = queued();
  run_on_nodes(story, 1);
  story.tell(core::TimeLimitChanged{"ben", 1h}).tell(core::TimeLimitAnswered{1, 1h, ""});
  story.tell(core::TimeLimitChanged{"ben", 2h}).tell(core::TimeLimitAnswered{1, 2h, "Access/permission denied"});
  EXPECT_EQ(story.job.time_limit, 1h);
  EXPECT_FALSE(story.job.time_limit_asked);
  EXPECT_EQ(story.job.time_limit_refusal, story.last.text);
  story.tell(core::TimeLimitChanged{"ben", 30min});
  EXPECT_EQ(story.job.time_limit_refusal, "") << "asked anew";
  story.tell(core::TimeLimitAnswered{1, 2h, "late"});
  EXPECT_EQ(story.job.time_limit_asked, 30min) << "that was about another one";
}

TEST_F(LimitStory, ATimeLimitThatWasNotAnsweredCountsForTheNextAttempt) {
  Story story = queued();
  run_on_nodes(story, 1);
  story.tell(core::TimeLimitChanged{"ben", 2h}).tell(core::AttemptGone{1, core::Cause::kNodeFailed, "gone"});
  EXPECT_EQ(story.job.time_limit, 2h);
  EXPECT_FALSE(story.job.time_limit_asked);
  story.tell(core::TimeLimitAnswered{1, 2h, "denied"});
  EXPECT_EQ(story.job.time_limit, 2h) << "late news";
}

TEST_F(LimitStory, AnEndedJobsTimeLimitStaysAsItWas) {
  Story story;
  story.tell(submitted()).tell(core::CancelRequested{"ben"}).tell(core::TimeLimitChanged{"ben", 1h});
  EXPECT_EQ(story.job.time_limit, 0h);
  EXPECT_EQ(core::refusal_of(story.job, core::TimeLimitChanged{}), core::Refusal::kEnded);
}

TEST_F(HastyStory, AProgramThatAlwaysAsksToBeStartedAgainIsSlowedDown) {
  Story story;
  story.tell(submitted(1));
  std::vector<std::int64_t> waits;
  for (core::AttemptNumber number = 1; number <= 4; ++number) {
    story.run(number).wait(9999ms).tell(exited(number, 0, 99));
    ASSERT_EQ(story.job.state, JobState::kWaiting);
    waits.push_back((*story.job.next_attempt_at - story.now).count());
  }
  EXPECT_EQ(waits, (std::vector<std::int64_t>{1000, 2000, 4000, 8000}));
  EXPECT_EQ(story.job.spent.at(Cause::kPreempted), 4U);
}

TEST_F(HastyStory, OneThatRanLongEnoughOrSavedIsNot) {
  Story story;
  story.tell(submitted(1));
  story.run(1).wait(10s).tell(exited(1, 0, 99));
  EXPECT_EQ(story.job.next_attempt_at, story.now);
  story.run(2).tell(core::CheckpointSaved{2, 10}).tell(exited(2, 0, 99));
  EXPECT_EQ(story.job.next_attempt_at, story.now);
  story.run(3).tell(core::CheckpointSaved{3, 10}).tell(exited(3, 0, 99));
  EXPECT_EQ(story.job.next_attempt_at, story.now + 1s) << "the same step again is nothing new";
}

}  // namespace
}  // namespace test
