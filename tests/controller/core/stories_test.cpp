// Goal: a job's life follows the rules of controller/core/job.h and controller/core/apply.h.
// Method: literal event logs, replayed; each test is one story.
#include <gtest/gtest.h>

#include <csignal>

#include "controller/core/requeue_policy.h"
#include "tests/controller/core/sentences.h"

namespace test {
namespace {

class ErrorStory : public ToldStories {};
class JobStory : public ToldStories {};
class NoteStory : public ToldStories {};
class ProgressStory : public ToldStories {};

using namespace std::chrono_literals;
using core::AttemptState;
using core::Cause;
using core::JobState;

Story running(std::uint32_t ranks = 2, core::RequeuePolicy policy = {}) {
  Story story;
  story.tell(submitted(ranks, policy)).run(1);
  return story;
}

/// One attempt that starts, runs for `time` and fails at once.
void fail_once(Story& story, core::Millis time = 0ms) {
  const auto number = static_cast<core::AttemptNumber>(story.job.attempts.size() + 1);
  story.run(number).wait(time);
  for (core::RankNumber rank = 0; rank < story.job.world_size; ++rank) story.tell(exited(number, rank, 1));
}

TEST_F(JobStory, AJobRunsAndSucceeds) {
  Story story;
  story.tell(submitted());
  EXPECT_EQ(story.job.state, JobState::kPending);
  ASSERT_TRUE(story.action<core::StartAttempt>());
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{1, at_ms(0)}));
  story.wait(1s).tell(core::AttemptLaunched{1, "h", "n1", {11, 12}});
  EXPECT_EQ(story.job.state, JobState::kRunning);
  EXPECT_EQ(story.attempt(1).state, AttemptState::kStarting);
  EXPECT_EQ(story.attempt(1).ranks[1].pid, 12);
  story.tell(core::RankJoined{1, 0, "n1", 11}).wait(1s).tell(core::RankJoined{1, 1, "n1", 12});
  EXPECT_EQ(story.attempt(1).state, AttemptState::kRunning);
  EXPECT_EQ(story.attempt(1).started_at, at_ms(1000));
  EXPECT_EQ(story.attempt(1).running_at, at_ms(2000));
  story.tell(exited(1, 0, 0));
  EXPECT_EQ(story.job.state, JobState::kRunning) << "the others are waited for";
  EXPECT_TRUE(story.last.actions.empty());
  story.tell(exited(1, 1, 0));
  EXPECT_EQ(story.job.state, JobState::kSucceeded);
  EXPECT_EQ(story.attempt(1).cause, Cause::kCompleted);
  EXPECT_EQ(story.job.ended_at, at_ms(2000));
  EXPECT_EQ(story.job.version, 6);
}

TEST_F(JobStory, ACommandRunsFromItsLaunchOn) {
  Story story;
  auto command = submitted(1);
  command.is_command = true;
  story.tell(command).tell(core::AttemptLaunched{1, "h", "n1", {11}});
  EXPECT_EQ(story.attempt(1).state, AttemptState::kRunning);
  EXPECT_EQ(story.attempt(1).running_at, at_ms(0));
  EXPECT_EQ(story.attempt(1).ranks[0].state, core::RankState::kRunning);
}

TEST_F(JobStory, AKilledRankIsNamedAndTheNextAttemptSaysWhy) {
  Story story = running();
  story.tell(core::CheckpointSaved{1, 30}).tell(killed(1, 1, 9));
  EXPECT_EQ(story.job.state, JobState::kStopping);
  EXPECT_EQ(story.attempt(1).state, AttemptState::kDraining);
  ASSERT_TRUE(story.action<core::StopAttempt>());
  EXPECT_EQ(*story.action<core::StopAttempt>(), (core::StopAttempt{1, false, "rank 1 killed by SIGKILL"}));
  story.tell(exited(1, 0, 1, "connection reset by peer"));
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.attempt(1).cause, Cause::kFailed);
  EXPECT_EQ(story.attempt(1).culprit, 1U);
  EXPECT_EQ(story.attempt(1).culprit_exit, (core::ExitStatus{0, 9}));
  EXPECT_EQ(story.attempt(1).ranks[0].last_words, "connection reset by peer");
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, at_ms(1000)}));
  EXPECT_EQ(story.job.next_attempt_at, at_ms(1000));
  story.wait(1s).run(2);
  EXPECT_EQ(story.job.next_attempt_at, std::nullopt);
  story.tell(core::AttemptResumed{2, 30});
  EXPECT_EQ(story.attempt(2).resumed_from_step, 30);
}

TEST_F(JobStory, ARankThatMusterStoppedIsToldFromOneThatFailed) {
  auto story = running(4);
  story.tell(exited(1, 1, 3)).tell(killed(1, 0, 15)).tell(killed(1, 2, 9)).tell(exited(1, 3, 0));
  const auto& failed = story.attempt(1);
  EXPECT_TRUE(core::is_stopped_by_muster(failed, 0));
  EXPECT_FALSE(core::is_stopped_by_muster(failed, 1));
  EXPECT_FALSE(core::is_stopped_by_muster(failed, 2)) << "a kernel out of memory kills several";
  EXPECT_FALSE(core::is_stopped_by_muster(failed, 3));
  auto first = running();
  first.tell(killed(1, 1, 15));
  EXPECT_FALSE(core::is_stopped_by_muster(first.attempt(1), 1)) << "nobody knows who sent it";
  auto cancelled = running();
  cancelled.tell(core::CancelRequested{"ada"}).tell(killed(1, 0, 9));
  EXPECT_TRUE(core::is_stopped_by_muster(cancelled.attempt(1), 0));
  EXPECT_FALSE(core::is_stopped_by_muster(cancelled.attempt(1), 1)) << "it has not exited";
}

TEST_F(JobStory, FailuresWithoutProgressSpendTheBudget) {
  Story story;
  story.tell(submitted(1));
  std::vector<std::int64_t> waits;
  for (int i = 0; i < 3; ++i) {
    fail_once(story);
    ASSERT_EQ(story.job.state, JobState::kWaiting);
    waits.push_back((*story.job.next_attempt_at - story.now).count());
  }
  EXPECT_EQ(waits, (std::vector<std::int64_t>{1000, 2000, 4000}));
  fail_once(story);
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kBudget);
  EXPECT_TRUE(story.last.actions.empty());
}

TEST_F(JobStory, ABudgetOfNoneEndsTheJobAtTheFirstFailure) {
  core::RequeuePolicy policy;
  policy.max_failed = 0;
  Story story;
  story.tell(submitted(1, policy));
  fail_once(story);
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kBudget);
}

TEST_F(JobStory, ANewCheckpointRefillsTheBudgetAndResetsTheBackoff) {
  Story story;
  story.tell(submitted(1));
  for (int i = 0; i < 3; ++i) fail_once(story);
  story.run(4).tell(core::CheckpointSaved{4, 10}).tell(exited(4, 0, 1));
  ASSERT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.job.spent.at(Cause::kFailed), 1U);
  EXPECT_EQ(story.job.next_attempt_at, story.now + 1s);
  EXPECT_EQ(story.job.refilled, (core::Refill{core::Refill::By::kCheckpoint, 10}));
  EXPECT_EQ(story.job.spent.at(Cause::kFailed), 1u);
}

TEST_F(JobStory, ACheckpointThatIsOverwrittenIsListedOnce) {
  Story story = running();
  for (const core::Step step : {10, 20, 30}) {
    core::CheckpointSaved saved{1, step};
    saved.path = step == 20 ? "best.pt" : "last.pt";
    story.tell(saved);
  }
  const auto& kept = story.job.program.checkpoints;
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].path, "best.pt");
  EXPECT_EQ(kept[1].path, "last.pt");
  EXPECT_EQ(kept[1].step, 30);
}

TEST_F(JobStory, SavingAnOldStepAgainIsNoProgress) {
  Story story;
  story.tell(submitted(1));
  story.run(1).tell(core::CheckpointSaved{1, 10}).tell(exited(1, 0, 1));
  for (core::AttemptNumber number : {2U, 3U}) {
    story.run(number).tell(core::CheckpointSaved{number, 10}).tell(exited(number, 0, 1));
  }
  EXPECT_EQ(story.job.spent.at(Cause::kFailed), 3U);
  story.run(4).tell(exited(4, 0, 1));
  EXPECT_EQ(story.job.state, JobState::kFailed);
}

TEST_F(JobStory, RunningLongEnoughIsHealthyAndTheEndAfterwardsCountsAsTheFirst) {
  Story story;
  story.tell(submitted(1));
  for (int i = 0; i < 3; ++i) fail_once(story);
  fail_once(story, 10min);
  ASSERT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.job.spent.at(Cause::kFailed), 1U);
  EXPECT_EQ(story.job.unhealthy_ends, 1U);
  EXPECT_EQ(story.job.refilled, (core::Refill{core::Refill::By::kHealthyRun, 4}));
  EXPECT_EQ(story.job.spent.at(Cause::kFailed), 1u);
  fail_once(story, 10min - 1ms);
  EXPECT_EQ(story.job.spent.at(Cause::kFailed), 2U);
}

TEST_F(JobStory, EachCauseHasItsOwnBudgetButTheBackoffIsShared) {
  Story story = running(1);
  story.tell(exited(1, 0, 1));
  story.run(2).tell(exited(2, 0, core::kExitOutOfMemory));
  EXPECT_EQ(story.attempt(2).cause, Cause::kOutOfMemory);
  EXPECT_EQ(story.job.spent, (std::map<Cause, std::uint32_t>{{Cause::kFailed, 1}, {Cause::kOutOfMemory, 1}}));
  EXPECT_EQ(story.job.next_attempt_at, story.now + 2s);
  story.run(3).tell(core::RankExited{3, 0, {0, 9}, true, ""});
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kBudget);
}

TEST_F(JobStory, Code93NeverComesBack) {
  Story story = running();
  story.tell(exited(1, 0, 93, "vocabulary does not fit")).tell(exited(1, 1, 1));
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kNo) << "no budget is asked";
  EXPECT_TRUE(story.last.actions.empty());
}

TEST_F(JobStory, ARankAskedToLeaveFromOutsideTakesTheOthersAlongAndComesBackAtOnce) {
  Story story = running();
  story.wait(10s).tell(exited(1, 1, 99));
  EXPECT_TRUE(story.action<core::StopAttempt>()->save) << "they leave together";
  story.tell(exited(1, 0, 99));
  EXPECT_EQ(story.attempt(1).cause, Cause::kPreempted);
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now}));
  EXPECT_EQ(story.job.unhealthy_ends, 0U);
  EXPECT_TRUE(story.last.effect.is_charged);
}

TEST_F(JobStory, AFencedRankMeansThatTheControllerLostTheAttempt) {
  Story story = running(1);
  story.tell(exited(1, 0, 94));
  EXPECT_EQ(story.attempt(1).cause, Cause::kControllerLost);
  EXPECT_EQ(story.job.state, JobState::kWaiting);
}

TEST_F(JobStory, ASilentRankCostsOneAttemptNeverTheJob) {
  Story story = running();
  story.tell(core::RankSilent{1, 1, 3s, "stopped"});
  EXPECT_EQ(story.attempt(1).ranks[1].state, core::RankState::kSilent);
  EXPECT_EQ(*story.action<core::StopAttempt>(),
            (core::StopAttempt{1, false, "rank 1 silent for 3 s (its process is stopped)"}));
  story.tell(core::RankSilent{1, 0, 3s, "alive"});
  EXPECT_TRUE(story.last.actions.empty());
  story.tell(killed(1, 0, 15)).tell(killed(1, 1, 9));
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.attempt(1).cause, Cause::kRankSilent);
  EXPECT_EQ(story.attempt(1).culprit, 1U);
}

TEST_F(JobStory, AHungRankIsToldApartFromASilentOne) {
  Story story = running();
  story.tell(core::RankHung{1, 0, "data", 65s}).tell(killed(1, 0, 9)).tell(killed(1, 1, 9));
  EXPECT_EQ(story.attempt(1).cause, Cause::kRankHung);
}

TEST_F(JobStory, ASuspicionIsShownAndEndsNothing) {
  Story story = running();
  const std::string before = story.job.reason;
  story.tell(core::AttemptSuspected{.attempt = 1,
                                    .first_rank = 1,
                                    .section = "step",
                                    .lasts = 12s,
                                    .limit = 10s,
                                    .ends_after = 600s,
                                    .learned_from = 200});
  EXPECT_TRUE(story.last.actions.empty());
  EXPECT_EQ(story.job.state, JobState::kRunning);
  EXPECT_EQ(story.attempt(1).suspicion, core::Suspicion::kHung);
  story.tell(core::SuspicionOver{1, core::Suspicion::kHung, 40s});
  EXPECT_FALSE(story.attempt(1).suspicion);
  EXPECT_EQ(story.job.reason, before);
}

TEST_F(JobStory, NothingIsSuspectedOfWhatStops) {
  Story story = running();
  story.tell(core::AttemptSuspected{.attempt = 1, .first_rank = 1, .lasts = 12s})
      .tell(core::RankHung{1, 1, "step", 10min});
  EXPECT_FALSE(story.attempt(1).suspicion);
  story.tell(core::AttemptSuspected{.attempt = 1, .first_rank = 0, .lasts = 12s});
  EXPECT_FALSE(story.attempt(1).suspicion);
}

TEST_F(JobStory, AtTheTimeLimitRanksSaveAndTheJobComesBack) {
  Story story;
  auto limited = submitted();
  limited.time_limit = 2h;
  story.tell(limited).run(1).tell(core::TimeLimitReached{1});
  EXPECT_EQ(*story.action<core::StopAttempt>(), (core::StopAttempt{1, true, "time limit of 2 h reached"}));
  story.tell(core::CheckpointSaved{1, 50}).tell(exited(1, 0, 99)).tell(exited(1, 1, 99));
  EXPECT_EQ(story.attempt(1).cause, Cause::kTimedOut);
  EXPECT_EQ(story.job.last_checkpoint_step, 50) << "a checkpoint saved while leaving counts";
  EXPECT_EQ(story.job.spent.at(Cause::kTimedOut), 1U);
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.job.next_attempt_at, story.now) << "it saved: there is nothing to wait for";
  story.run(2).tell(core::TimeLimitReached{2}).tell(exited(2, 0, 99)).tell(exited(2, 1, 99));
  EXPECT_GT(story.job.next_attempt_at, story.now) << "nothing was saved";
}

TEST_F(JobStory, APendingJobIsCancelledAtOnceAndALaunchUnderWayIsStopped) {
  Story story;
  story.tell(submitted()).tell(core::CancelRequested{"ben"});
  EXPECT_EQ(story.job.state, JobState::kCancelled);
  EXPECT_EQ(*story.action<core::StopAttempt>(), (core::StopAttempt{1, false, "cancelled by ben"}));
  story.tell(core::AttemptLaunched{1, "h", "n1", {}});
  EXPECT_EQ(story.job.state, JobState::kCancelled);
  EXPECT_TRUE(story.job.attempts.empty());
  ASSERT_TRUE(story.action<core::StopAttempt>()) << "nothing ever runs unwatched";
}

TEST_F(JobStory, ARunningJobSavesBeforeItIsCancelledAndNeverComesBack) {
  Story story = running();
  story.tell(core::CancelRequested{"ben"});
  EXPECT_EQ(story.job.state, JobState::kStopping);
  EXPECT_EQ(*story.action<core::StopAttempt>(), (core::StopAttempt{1, true, "cancelled by ben"}));
  story.tell(core::CancelRequested{"ben"});
  EXPECT_TRUE(story.last.actions.empty());
  story.tell(core::RequeueRequested{"anna"}).tell(exited(1, 0, 99)).tell(exited(1, 1, 0));
  EXPECT_EQ(story.job.state, JobState::kCancelled);
  EXPECT_EQ(story.attempt(1).cause, Cause::kCancelled);
  EXPECT_EQ(core::refusal_of(story.job, core::RequeueRequested{}), core::Refusal::kCancelled);
  const core::Job before = story.job;
  story.tell(core::RequeueRequested{"anna"});
  EXPECT_EQ(story.job.state, before.state);
  EXPECT_TRUE(story.last.actions.empty());
}

TEST_F(JobStory, CancellingAFailingAttemptKeepsItsCauseButEndsTheJob) {
  Story story = running();
  story.tell(killed(1, 1, 9)).tell(core::CancelRequested{"ben"}).tell(killed(1, 0, 15));
  EXPECT_EQ(story.attempt(1).cause, Cause::kFailed);
  EXPECT_EQ(story.job.state, JobState::kCancelled);
}

TEST_F(JobStory, AWaitingJobIsCancelledAtOnce) {
  Story story;
  story.tell(submitted(1));
  fail_once(story);
  story.tell(core::CancelRequested{"ben"});
  EXPECT_EQ(story.job.state, JobState::kCancelled);
  EXPECT_EQ(story.job.next_attempt_at, std::nullopt);
}

TEST_F(JobStory, RequeueOfARunningJobIsFreeAndAtOnce) {
  Story story = running();
  story.tell(core::RequeueRequested{"anna"});
  EXPECT_TRUE(story.action<core::StopAttempt>()->save);
  story.tell(core::RequeueRequested{"anna"}).tell(exited(1, 0, 99)).tell(exited(1, 1, 99));
  EXPECT_EQ(story.attempt(1).cause, Cause::kRequeued);
  EXPECT_TRUE(story.job.spent.empty());
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now}));
}

TEST_F(JobStory, RequeueWhileWaitingSkipsTheBackoff) {
  Story story;
  story.tell(submitted(1));
  fail_once(story);
  story.wait(10ms).tell(core::RequeueRequested{"anna"});
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now}));
  EXPECT_EQ(story.job.spent.at(Cause::kFailed), 1U);
}

// Attempt 3 saved a checkpoint, and was killed before it told of it.
TEST_F(JobStory, ACheckpointThatOnlyItsResumeProvesRefillsTheBudgetToo) {
  Story story;
  story.tell(submitted(1));
  for (int i = 0; i < 3; ++i) fail_once(story);
  ASSERT_EQ(story.job.spent.at(Cause::kFailed), 3U);
  story.wait(1min).run(4).tell(core::AttemptResumed{4, 10});
  EXPECT_EQ(story.job.last_checkpoint_step, 10);
  EXPECT_TRUE(story.last.effect.is_untold);
  EXPECT_FALSE(story.job.saved_anew) << "the attempt itself has saved nothing";
  story.tell(exited(4, 0, 1));
  ASSERT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.job.spent.at(Cause::kFailed), 1U);
  story.wait(1min).run(5).tell(core::AttemptResumed{5, 10}).tell(exited(5, 0, 1));
  EXPECT_EQ(story.job.spent.at(Cause::kFailed), 2U) << "the same checkpoint is no progress";
}

TEST_F(JobStory, RequeueOfAFailedJobRefillsTheBudgets) {
  core::RequeuePolicy policy;
  policy.max_failed = 1;
  Story story;
  story.tell(submitted(1, policy));
  fail_once(story);
  fail_once(story);
  ASSERT_EQ(story.job.state, JobState::kFailed);
  story.wait(1s).tell(core::RequeueRequested{"anna"});
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.job.ended_at, std::nullopt);
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{3, story.now}));
  fail_once(story);
  EXPECT_EQ(story.job.state, JobState::kWaiting) << "one more failure is allowed again";
}

TEST_F(JobStory, RequeueOfAStoppingJobStartsAgainWhateverTheBudget) {
  core::RequeuePolicy policy;
  policy.max_failed = 0;
  Story story = running(2, policy);
  story.tell(killed(1, 1, 9)).tell(core::RequeueRequested{"anna"}).tell(killed(1, 0, 15));
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.attempt(1).cause, Cause::kFailed);
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, story.now}));
  EXPECT_FALSE(story.job.requeue_requested);
}

TEST_F(JobStory, RequestsThatMakeNoSenseAreRefused) {
  Story story;
  story.tell(submitted(1));
  EXPECT_EQ(core::refusal_of(story.job, core::CancelRequested{}), core::Refusal::kNone);
  EXPECT_EQ(core::refusal_of(story.job, core::RequeueRequested{}), core::Refusal::kNotStarted);
  story.run(1);
  EXPECT_EQ(core::refusal_of(story.job, core::RequeueRequested{}), core::Refusal::kNone);
  story.tell(exited(1, 0, 0));
  EXPECT_EQ(core::refusal_of(story.job, core::CancelRequested{}), core::Refusal::kEnded);
  EXPECT_EQ(core::refusal_of(story.job, core::RequeueRequested{}), core::Refusal::kSucceeded);
}

TEST_F(JobStory, ALaunchThatFailsIsTriedAgainUnlessThatCannotHelp) {
  Story story;
  story.tell(submitted()).tell(core::AttemptLaunchFailed{1, "no process slots", true});
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.attempt(1).cause, Cause::kControllerLost);
  EXPECT_EQ(story.attempt(1).started_at, std::nullopt);
  EXPECT_EQ(*story.action<core::StartAttempt>(), (core::StartAttempt{2, at_ms(1000)}));
  story.tell(core::AttemptLaunchFailed{2, "/no/such: not found", false});
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.attempt(2).cause, Cause::kFailed);
}

TEST_F(JobStory, LaunchesThatKeepFailingAreBounded) {
  Story story;
  story.tell(submitted());
  for (core::AttemptNumber number = 1; number <= 6; ++number) {
    ASSERT_FALSE(is_ended(story.job.state));
    story.tell(core::AttemptLaunchFailed{number, "no process slots", true});
  }
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kBudget);
}

TEST_F(JobStory, AnAttemptThatIsGoneEndsWhateverItsRanksSay) {
  Story story = running();
  story.tell(core::AttemptGone{1, Cause::kNodeFailed, "node1 is down"});
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  EXPECT_EQ(story.attempt(1).cause, Cause::kNodeFailed);
  for (const auto& rank : story.attempt(1).ranks) EXPECT_EQ(rank.state, core::RankState::kExited);
  story.tell(killed(1, 0, 9)).tell(core::AttemptGone{1, Cause::kFailed, "again"});
  EXPECT_EQ(story.attempt(1).cause, Cause::kNodeFailed) << "late news changes nothing";
}

TEST_F(JobStory, AnAttemptThatIsGoneWhileDrainingKeepsItsCause) {
  Story story = running();
  story.tell(core::RankSilent{1, 0, 3s, ""}).tell(core::AttemptGone{1, Cause::kControllerLost, "no trace"});
  EXPECT_EQ(story.attempt(1).cause, Cause::kRankSilent);
  EXPECT_EQ(story.job.state, JobState::kWaiting);
}

TEST_F(JobStory, TheSameLaunchToldTwiceChangesNothing) {
  Story story = running();
  const auto before = story.job.attempts;
  story.tell(core::AttemptLaunched{1, "other", "other", {1, 2}});
  EXPECT_EQ(story.job.attempts, before);
  EXPECT_TRUE(story.last.actions.empty());
}

TEST_F(JobStory, AnOldAttemptThatTurnsUpAgainIsStopped) {
  Story story;
  story.tell(submitted(1));
  fail_once(story);
  story.run(2).tell(core::AttemptLaunched{1, "h", "n1", {}});
  EXPECT_EQ(story.action<core::StopAttempt>()->attempt, 1U);
  EXPECT_EQ(story.job.attempts.size(), 2U);
  EXPECT_EQ(story.attempt(2).state, AttemptState::kRunning);
  story.tell(core::AttemptLaunched{9, "h", "n1", {}});
  EXPECT_EQ(story.action<core::StopAttempt>()->attempt, 9U);
}

TEST_F(JobStory, LateNewsOfAnEndedAttemptNeverTouchesTheNext) {
  Story story;
  story.tell(submitted(1));
  fail_once(story);
  story.run(2);
  const core::Job before = story.job;
  story.tell_all(killed(1, 0, 9), core::RankSilent{1, 0, 3s, ""}, core::CheckpointSaved{1, 999},
                 core::AttemptGone{1, Cause::kFailed, ""}, core::TimeLimitReached{1}, core::RankJoined{1, 0, "x", 1});
  core::Job after = story.job;
  after.version = before.version;
  EXPECT_EQ(after, before);
}

/// A program of one rank.
Story program(core::RequeuePolicy policy = {}) {
  auto command = submitted(1, policy);
  command.is_command = true;
  Story story;
  story.tell(command);
  return story;
}

/// The job's next attempt starts, runs for `time` and exits with 1 and this error.
void fail_with(Story& story, const std::string& error, core::Millis time = 1s, core::Step step = 0) {
  const auto number = static_cast<core::AttemptNumber>(story.job.attempts.size() + 1);
  story.tell(core::AttemptLaunched{number, "h", "n1", {11}}).wait(time);
  story.tell(core::RankExited{number, 0, {1, 0}, false, "", error, step});
}

/// Does as fail_with() does; the attempt also leaves `fresh` files, of which `new_names` have new names.
void fail_and_leave(Story& story, const std::string& error, core::Millis time, std::uint32_t fresh, int new_names) {
  const auto number = static_cast<core::AttemptNumber>(story.job.attempts.size() + 1);
  story.tell(core::AttemptLaunched{number, "h", "n1", {11}}).wait(time);
  story.tell(core::CheckpointFolderSeen{number, fresh, "config.json", "", new_names});
  story.tell(core::RankExited{number, 0, {1, 0}, false, "", error});
}

TEST_F(ErrorStory, ExitsSayWhoAndHow) {
  for (const auto& exit : {killed(1, 1, 9), exited(1, 0, 3, "no data\n"), exited(1, 0, 97, "CUDA out of memory")}) {
    Story story = running();
    story.tell(exit);
    EXPECT_EQ(story.attempt(1).culprit, exit.rank);
  }
}

TEST_F(ErrorStory, TheReasonHoldsTheProgramsOwnErrorUnlessTheRankSaidMoreItself) {
  Story story = program();
  fail_with(story, "RuntimeError: CUDA error: device-side assert triggered");
  EXPECT_EQ(story.attempt(1).error, "RuntimeError: CUDA error: device-side assert triggered");
  story.tell(core::AttemptLaunched{2, "h", "n1", {11}});
  story.tell(core::RankExited{2, 0, {1, 0}, false, "the disk is full", "error: the disk is full (exit code 1)"});
}

TEST_F(ErrorStory, TheSameErrorTwiceWithinAMinuteIsNotTriedAgain) {
  Story story = program();
  fail_with(story, "OSError: no such file: /tmp/tmp4x_91/data at 0x7f00aa12 (pid 48213)");
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  story.wait(1h);
  fail_with(story, "OSError: no such file: /tmp/tmpk3_07/data at 0x7fdd0188 (pid 9921)", 59s);
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kSameError);
  EXPECT_EQ(story.job.same_errors, 2u);
  story.tell(core::RequeueRequested{"anna"});
  EXPECT_EQ(story.job.state, JobState::kWaiting) << "a person may still";
  fail_with(story, "OSError: no such file: /tmp/tmpk3_07/data at 0x7fdd0188 (pid 9921)");
  EXPECT_EQ(story.job.state, JobState::kWaiting) << "and then it counts anew";
}

/// A program of two ranks ends; each rank says this of its sources.
std::string note_of(const std::string& rank0, const std::string& rank1) {
  auto command = submitted(2);
  command.is_command = true;
  Story story;
  story.tell(command).tell(core::AttemptLaunched{1, "h", "n1", {11, 12}});
  for (core::RankNumber rank = 0; rank < 2; ++rank) {
    core::RankExited exit{1, rank, {0, 0}, false, ""};
    exit.source_trouble = rank == 0 ? rank0 : rank1;
    story.tell(exit);
  }
  return story.job.program.source_trouble;
}

TEST_F(NoteStory, APatternIsAmissOnlyWhereItMatchesNothingOfAnyRank) {
  const std::string nothing = "report.log: no line of the log matches the pattern of ";
  EXPECT_EQ(note_of("", nothing + "loss, step"), "") << "rank 0 alone prints";
  EXPECT_EQ(note_of(nothing + "loss, step", ""), "") << "the last rank alone prints";
  EXPECT_EQ(note_of(nothing + "acc", nothing + "acc, loss, step"), nothing + "acc");
  EXPECT_EQ(note_of(nothing + "acc, loss", nothing + "step"), "");
  EXPECT_EQ(note_of("report.checkpoints: nothing has matched x", nothing + "loss"),
            "rank 0: report.checkpoints: nothing has matched x");
}

/// Does as fail_with() does; `newest` is the newest step that any rank has told.
void fail_at(Story& story, const std::string& error, core::Millis time, core::Step newest) {
  const auto number = static_cast<core::AttemptNumber>(story.job.attempts.size() + 1);
  story.tell(core::AttemptLaunched{number, "h", "n1", {11}}).wait(time);
  core::RankExited exit{number, 0, {1, 0}, false, "", error, 0};
  exit.attempt_step = newest;
  story.tell(exit);
}

TEST_F(ErrorStory, TheSameErrorBeforeTheFirstStepIsNotTriedAgainHoweverSlowTheStart) {
  Story slow = program();
  fail_at(slow, "ModuleNotFoundError: No module named 'tokenise'", 62s, 0);
  fail_at(slow, "ModuleNotFoundError: No module named 'tokenise'", 62s, 0);
  EXPECT_EQ(slow.job.state, JobState::kFailed);
  EXPECT_EQ(slow.last.effect.given_up, core::GivenUp::kSameError);
  EXPECT_EQ(slow.job.same_errors, 2u);
  Story reports = program();
  reports.tell(core::AttemptLaunched{1, "h", "n1", {11}}).tell(core::RankJoined{1, 0, "n1", 11}).wait(20min);
  core::RankExited exit{1, 0, {1, 0}, false, "", "OSError: no such file: data.bin", 0};
  exit.attempt_step = 0;
  reports.tell(exit);
  fail_at(reports, "OSError: no such file: data.bin", 25min, 0);
  EXPECT_EQ(reports.job.state, JobState::kFailed)
      << "its attempts were longer than healthy_after, and all of it was start";
}

TEST_F(ErrorStory, TheSameErrorAfterStepsInALongRunIsTriedAgain) {
  Story steps = program();
  for (int i = 0; i < 3; ++i) fail_at(steps, "RuntimeError: it", 62s, 40);
  EXPECT_EQ(steps.job.state, JobState::kWaiting);
  Story silent = program();
  for (int i = 0; i < 9; ++i) fail_at(silent, "RuntimeError: it", 11min, 0);
  EXPECT_EQ(silent.job.state, JobState::kWaiting) << "it never tells a step, and has run for healthy_after";
}

/// A program like that of program(), submitted by this muster. `tells_steps`: [report] says where its steps are found.
Story new_program(bool tells_steps = false) {
  auto command = submitted(1);
  command.is_command = true;
  command.error_rules = core::kErrorRules;
  command.tells_steps = tells_steps;
  Story story;
  story.tell(command);
  return story;
}

TEST_F(ErrorStory, OfAProgramWhoseJobFileSaysWhereItsStepsAreAllBeforeTheFirstIsStart) {
  Story story = new_program(true);
  fail_at(story, "OSError: no such file: data.bin", 11min, 0);
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  fail_at(story, "OSError: no such file: data.bin", 3h, 0);
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kSameError) << story.last.text;
  Story steps = new_program(true);
  for (int i = 0; i < 3; ++i) fail_at(steps, "OSError: no such file: data.bin", 11min, 40);
  EXPECT_EQ(steps.job.state, JobState::kWaiting) << "it had begun to train";
}

TEST_F(ErrorStory, OfASilentProgramTheSameErrorAfterTheSameTimeIsTheSameLongStart) {
  Story story = new_program();
  fail_at(story, "ValueError: no shard", 11min, 0);
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  fail_at(story, "ValueError: no shard", 11min + 30s, 0);
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kSameError) << story.last.text;
  EXPECT_TRUE(story.last.effect.was_long_start);
}

TEST_F(ErrorStory, OfASilentProgramThatMayHaveTrainedTheSameErrorIsTriedAgain) {
  Story other_times = new_program();
  for (const auto time : {11min, 20min, 14min, 27min}) fail_at(other_times, "RuntimeError: it", time, 0);
  EXPECT_EQ(other_times.job.state, JobState::kWaiting) << "after another time each";
  Story hours = new_program();
  for (int i = 0; i < 4; ++i) fail_at(hours, "RuntimeError: it", 31min, 0);
  EXPECT_EQ(hours.job.state, JobState::kWaiting) << "nothing starts so long";
  Story saves = new_program();
  for (core::AttemptNumber number = 1; number <= 4; ++number) {
    saves.tell(core::AttemptLaunched{number, "h", "n1", {11}}).wait(11min);
    saves.tell(core::CheckpointFolderSeen{number, 1, "step-1", "", 1});
    core::RankExited exit{number, 0, {1, 0}, false, "", "RuntimeError: it", 0};
    exit.attempt_step = 0;
    saves.tell(exit);
  }
  EXPECT_EQ(saves.job.state, JobState::kWaiting) << "it goes on from what it saved";
  Story budget = new_program();
  for (int i = 0; i < 9; ++i) fail_at(budget, "RuntimeError: it " + std::string(i % 2 == 0 ? "a" : "b"), 11min, 0);
  EXPECT_EQ(budget.job.state, JobState::kWaiting) << "each such attempt refills the budgets";
}

TEST_F(ErrorStory, TimesAndProcessIdsMakeNoOtherError) {
  const std::pair<std::string, std::string> same[] = {
      {"RuntimeError: no answer at 2026-11-28 07:00:11,250", "RuntimeError: no answer at 2026-12-01 23:15:02"},
      {"RuntimeError: no answer at 2026-11-28T07:00:11Z", "RuntimeError: no answer at 2026-11-28T07:01:11Z"},
      {"TimeoutError: after 62.3 s", "TimeoutError: after 9.75 s"},
      {"TimeoutError: no shard in 9ms", "TimeoutError: no shard in 8ms"},
      {"RuntimeError: it ran for 5 minutes", "RuntimeError: it ran for 7 minutes"},
      {"RuntimeError: DataLoader worker (pid(s) 27, 31) exited unexpectedly",
       "RuntimeError: DataLoader worker (pid(s) 8, 112) exited unexpectedly"},
      {"RuntimeError: process 27 died", "RuntimeError: process 8 died"},
  };
  for (const auto& [one, other] : same) {
    EXPECT_TRUE(core::same_error(one, other)) << one;
    EXPECT_TRUE(core::same_error(other, one)) << one;
    EXPECT_FALSE(core::same_error(one, other, 0)) << "by the rules of an earlier muster: " << one;
  }
  const std::pair<std::string, std::string> different[] = {{"IndexError: row 5", "IndexError: row 7"},
                                                           {"x[1:20]", "x[1:30]"},
                                                           {"wants torch 2.1.0 s", "wants torch 2.4.0 s"},
                                                           {"train.py:12: KeyError", "train.py:14: KeyError"},
                                                           {"ratio 3:2", "ratio 3:4"},
                                                           {"in section 7", "in section 8"}};
  for (const auto& [one, other] : different) EXPECT_FALSE(core::same_error(one, other)) << one;
}

TEST_F(ErrorStory, PortsAndAddressesMakeNoOtherError) {
  const std::pair<std::string, std::string> same[] = {
      {"RuntimeError: Connection closed by peer [127.0.0.1]:4516",
       "RuntimeError: Connection closed by peer [127.0.0.1]:891"},
      {"RuntimeError: Connection closed by peer [10.0.0.7]:80",
       "RuntimeError: Connection closed by peer [10.1.12.118]:51"},
      {"OSError: cannot bind 10.0.0.7:22", "OSError: cannot bind 10.0.0.8"},
      {"OSError: no route to [fe80::1%eth0]:29500", "OSError: no route to [2001:db8::7]:81"},
      {"OSError: the port 80 is taken", "OSError: the port 51 is taken"},
  };
  for (const auto& [one, other] : same) {
    EXPECT_TRUE(core::same_error(one, other)) << one;
    EXPECT_TRUE(core::same_error(other, one)) << one;
  }
  EXPECT_FALSE(core::same_error("KeyError: 5", "KeyError: 7"));
  EXPECT_FALSE(core::same_error("wants torch 2.1.0", "wants torch 2.4.0")) << "a version is no address";
  EXPECT_FALSE(core::same_error("x[1:2]", "x[1:3]"));
  EXPECT_FALSE(core::same_error(same[2].first, same[2].second, core::kErrorRules, -1))
      << "by the rule of an earlier muster";
}

/// An attempt of two ranks. The first to leave says that its connection was closed.
Story survivor_leaves() {
  Story story;
  story.tell(submitted(2));
  story.run(1).wait(1s);
  core::RankExited exit{1, 0, {1, 0}, false, "", "RuntimeError: Connection closed by peer [127.0.0.1]:4516", 17};
  exit.attempt_step = 17;
  return story.tell(exit);
}

core::RankExited other_leaves(core::ExitStatus exit, const std::string& error) {
  core::RankExited out{1, 1, exit, false, "", error, 17};
  out.attempt_step = 17;
  return out;
}

TEST_F(ErrorStory, TheFirstCauseIsToldThoughASurvivorWasQuicker) {
  Story story = survivor_leaves();
  EXPECT_EQ(story.attempt(1).culprit, 0U);
  story.tell(other_leaves({1, 0}, "RuntimeError: loss is not finite"));
  EXPECT_EQ(story.attempt(1).error, "RuntimeError: loss is not finite");
  EXPECT_EQ(story.attempt(1).culprit, 1U);
  EXPECT_EQ(story.job.state, JobState::kWaiting);
  Story ended = survivor_leaves();
  ended.tell(other_leaves({0, SIGTERM}, "RuntimeError: loss is not finite"));
  EXPECT_EQ(ended.attempt(1).culprit, 1u) << "muster's signal ended it";
}

TEST_F(ErrorStory, AnotherSurvivorOrUnsureWordsAreNoFirstCause) {
  for (const std::string words : {"", "ConnectionResetError: [Errno 104] Connection reset by peer", "last line: bye"}) {
    Story story = survivor_leaves();
    story.tell(other_leaves({1, 0}, words));
    EXPECT_EQ(story.attempt(1).culprit, 0U) << words;
  }
  Story own;
  own.tell(submitted(2));
  own.run(1);
  core::RankExited exit{1, 0, {1, 0}, false, "", "ValueError: no data", 17};
  exit.attempt_step = 17;
  own.tell(exit).tell(other_leaves({1, 0}, "KeyError: 'x'"));
  EXPECT_EQ(own.attempt(1).error, "ValueError: no data") << "the first cause wins";
}

TEST_F(ErrorStory, WordsThatNeedNotBeTheErrorAreShownAndTriedAgain) {
  for (const std::string words : {"last line: config file missing", "logged: ERROR no shard left"}) {
    Story story = program();
    for (int i = 0; i < 3; ++i) fail_with(story, words);
    EXPECT_EQ(story.job.state, JobState::kWaiting) << words;
  }
}

TEST_F(ErrorStory, WhatDiffersInEveryRunMakesNoOtherError) {
  Story story = program();
  fail_with(story, "RuntimeError: no data (pid 27), pid=8, PID: 31");
  fail_with(story, "RuntimeError: no data (pid 102), pid=19, PID: 4");
  EXPECT_EQ(story.job.state, JobState::kFailed);
  Story other = program();
  fail_with(other, "KeyError: 5");
  fail_with(other, "KeyError: 7");
  EXPECT_EQ(other.job.state, JobState::kWaiting) << "another row of the data";
}

TEST_F(ErrorStory, AnotherErrorASaveALongerRunOrNoWordsAreTriedAgain) {
  const std::string error = "RuntimeError: it";
  Story other = program();
  fail_with(other, error);
  fail_with(other, "RuntimeError: something else");
  EXPECT_EQ(other.job.state, JobState::kWaiting);
  Story longer = program();
  fail_with(longer, error);
  fail_with(longer, error, 60s);
  EXPECT_EQ(longer.job.state, JobState::kWaiting);
  Story silent = program();
  for (int i = 0; i < 3; ++i) fail_with(silent, "");
  EXPECT_EQ(silent.job.state, JobState::kWaiting);
  Story saves = program();
  fail_with(saves, error);
  saves.tell(core::AttemptLaunched{2, "h", "n1", {11}}).tell(core::CheckpointSaved{2, 10});
  saves.tell(core::RankExited{2, 0, {1, 0}, false, "", error});
  EXPECT_EQ(saves.job.state, JobState::kWaiting);
  Story unknown = program();
  fail_with(unknown, error);
  unknown.tell(core::AttemptLaunched{2, "h", "n1", {11}}).tell(core::CheckpointFolderSeen{2, 0, "", "no answer"});
  unknown.tell(core::RankExited{2, 0, {1, 0}, false, "", error});
  EXPECT_EQ(unknown.job.state, JobState::kWaiting) << "nobody knows whether it saved";
}

TEST_F(ErrorStory, TheSameErrorAtAnotherStepIsAnotherEnd) {
  const std::string error = "RuntimeError: NCCL timeout";
  Story story = program();
  fail_with(story, error, 10s, 40);
  fail_with(story, error, 10s, 55);
  EXPECT_EQ(story.job.state, JobState::kWaiting) << story.job.reason;
  fail_with(story, error, 10s);
  EXPECT_EQ(story.job.state, JobState::kWaiting) << "no step is another one, too: " << story.job.reason;
  Story same = program();
  fail_with(same, error, 10s, 40);
  fail_with(same, error, 10s, 40);
  EXPECT_EQ(same.job.state, JobState::kFailed);
  EXPECT_EQ(same.last.effect.given_up, core::GivenUp::kSameError);
}

TEST_F(ErrorStory, FilesOfAShortAttemptDoNotHideTheSameError) {
  Story story = program();
  fail_and_leave(story, "ModuleNotFoundError: torch", 1s, 1, 1);
  fail_and_leave(story, "ModuleNotFoundError: torch", 59s, 2, 2);
  EXPECT_EQ(story.job.state, JobState::kFailed);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kSameError);
}

TEST_F(ErrorStory, HowOftenTheSameErrorIsTriedAgainIsForTheJobFileToSay) {
  for (const std::uint32_t limit : {0U, 1U, 5U}) {
    core::RequeuePolicy policy;
    policy.max_same_error = limit;
    policy.max_failed = 4;
    Story story = program(policy);
    std::uint32_t ends = 0;
    for (; story.job.state != JobState::kFailed && ends < 9; ++ends) fail_with(story, "RuntimeError: it");
    EXPECT_EQ(ends, std::min(limit, policy.max_failed) + 1);
  }
}

// An earlier muster stored ends of ranks without errors. Replaying such a job gives the same job.
TEST_F(ErrorStory, LastWordsAloneEndNoJob) {
  Story story = running();
  for (core::AttemptNumber number = 1; number <= 3; ++number) {
    if (number > 1) story.run(number);
    story.tell(exited(number, 0, 1, "connection refused")).tell(exited(number, 1, 1, "connection refused"));
    EXPECT_EQ(story.job.state, JobState::kWaiting) << number;
  }
}

TEST_F(ProgressStory, FilesOfAnAttemptThatRanForSomeTimeAreProgress) {
  for (const auto& [healthy_after, enough] : {std::pair{600s, 60s}, std::pair{0s, 60s}, std::pair{5s, 5s}}) {
    core::RequeuePolicy policy;
    policy.healthy_after = healthy_after;
    Story story = program(policy);
    for (int i = 0; i < 12; ++i) fail_and_leave(story, "", enough, 1, 0);
    EXPECT_EQ(story.job.state, JobState::kWaiting) << story.job.reason;
    EXPECT_EQ(story.job.unhealthy_ends, 1U) << "the backoff begins anew, too";
  }
}

TEST_F(ProgressStory, NewNamesRefillTheBudgetsOfShortAttemptsWhichComeBackLaterEachTime) {
  Story story = program();
  for (std::uint32_t i = 1; i <= 12; ++i) {
    fail_and_leave(story, "", 59s, 2, 1);
    ASSERT_EQ(story.job.state, JobState::kWaiting) << story.job.reason;
    EXPECT_EQ(story.job.unhealthy_ends, i);
  }
  EXPECT_EQ(*story.job.next_attempt_at - story.now, 300s);
}

TEST_F(ProgressStory, AProgramThatWritesTheSameNamesAtEachStartIsNotStartedForEver) {
  Story story = program();
  for (int i = 0; i < 9 && story.job.state != JobState::kFailed; ++i) fail_and_leave(story, "", 1s, 2, i == 0 ? 2 : 0);
  EXPECT_EQ(story.job.attempts.size(), 4U);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kBudget);
  EXPECT_TRUE(story.job.brief_files);
}

// The events of an earlier muster do not tell the number of new names. Replaying them gives the same job.
TEST_F(ProgressStory, NewFilesThatAnEarlierMusterSawAreProgress) {
  Story story = program();
  for (core::AttemptNumber number = 1; number <= 12; ++number) {
    story.tell(core::AttemptLaunched{number, "h", "n1", {11}}).wait(2s);
    story.tell(core::CheckpointFolderSeen{number, 1, "step-" + std::to_string(5 * number), ""});
    story.tell(exited(number, 0, 1)).wait(1s);
    ASSERT_EQ(story.job.state, JobState::kWaiting) << story.job.reason;
    EXPECT_EQ(story.job.refilled.by, number == 1 ? core::Refill::By::kStart : core::Refill::By::kFiles);
  }
}

TEST_F(ProgressStory, WhatNobodyCouldSeeIsNotCalledNoProgress) {
  Story story = program();
  for (core::AttemptNumber number = 1; number <= 4; ++number) {
    story.tell(core::AttemptLaunched{number, "h", "n1", {11}});
    if (number == 2) story.tell(core::CheckpointFolderSeen{number, 0, "", "/data/ckpt gave no answer"});
    story.tell(exited(number, 0, 1));
  }
  EXPECT_EQ(story.job.state, JobState::kFailed) << "its budget is spent all the same";
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kBudget);
  EXPECT_EQ(story.job.unseen_progress, "/data/ckpt gave no answer");
}

TEST_F(ProgressStory, OfAProgramThatReportsNothingOnlyTheFolderIsSpokenOf) {
  Story story = program();
  for (int i = 0; i < 4; ++i) fail_once(story);
  EXPECT_EQ(story.last.effect.given_up, core::GivenUp::kBudget) << story.job.reason;
  EXPECT_TRUE(story.job.reports()) << "it has joined";
  Story silent = program();
  for (int i = 0; i < 4; ++i) fail_with(silent, "");
  EXPECT_EQ(silent.last.effect.given_up, core::GivenUp::kBudget);
  EXPECT_FALSE(silent.job.reports());
}

TEST_F(ProgressStory, WhereAnAttemptResumedIsUnknownUntilItsRanksHaveTold) {
  Story story = program();
  story.tell(core::AttemptLaunched{1, "h", "n1", {11}});
  EXPECT_EQ(story.attempt(1).resumed_from_step, std::nullopt);
  EXPECT_FALSE(story.job.reports());
  story.tell(core::RankJoined{1, 0, "n1", 11});
  EXPECT_TRUE(story.job.reports());
  EXPECT_TRUE(story.attempt(1).ranks[0].reports);
  EXPECT_EQ(story.attempt(1).resumed_from_step, std::nullopt);
  story.tell(core::AttemptResumed{1, 0});
  EXPECT_EQ(story.attempt(1).resumed_from_step, 0);
}

}  // namespace
}  // namespace test
