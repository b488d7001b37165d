// Goal: a reviewed table says what each event does in each state, and it never changes by accident.
// Method: every job and attempt state x every kind of event, written as one table.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/controller/core/golden.h"
#include "tests/controller/core/sentences.h"

namespace test {
namespace {

using namespace std::chrono_literals;

struct Named {
  std::string name;
  Story story;
};

Story fresh(bool is_command = false, std::uint32_t max_failed = 3) {
  core::RequeuePolicy policy;
  policy.max_failed = max_failed;
  auto event = submitted(2, policy);
  event.is_command = is_command;
  Story story;
  story.tell(event).wait(1s);
  return story;
}

Story running() {
  Story story = fresh();
  story.run(1).wait(1s);
  return story;
}

Story held() {
  auto event = submitted();
  event.held = true;
  Story story;
  story.tell(event).wait(1s);
  return story;
}

Story waits_for(std::vector<core::Dependency> others) {
  auto event = submitted();
  event.after = std::move(others);
  Story story;
  story.tell(event).wait(1s);
  return story;
}

/// Attempt 1 waits in a scheduler's queue.
Story queued() {
  Story story = fresh();
  story.tell(core::AttemptLaunched{1, "Slurm job 12", "", {}, true}).wait(1s);
  return story;
}

/// Attempt 1 runs with one rank on each of the scheduler's nodes.
Story on_nodes() {
  Story story = queued();
  story.tell_all(core::AttemptStarted{1, {"n1", "n2"}}, core::RankJoined{1, 0, "n1", 101},
                 core::RankJoined{1, 1, "n2", 102});
  return story;
}

/// Each job state, with each possible state of its newest attempt and each cause for which that attempt can drain.
std::vector<Named> states() {
  const auto launched = core::AttemptLaunched{1, "handle-1", "node1", {101, 102}};
  std::vector<Named> all;
  const auto add = [&](std::string name, Story story) { all.push_back({std::move(name), std::move(story)}); };
  add("pending", fresh());
  add("pending, held", held());
  add("pending, waits for job 5 to succeed", waits_for({{5, core::DependsOn::kSucceeded}}));
  add("pending, waits for job 5 to fail and job 6 to end",
      waits_for({{5, core::DependsOn::kFailed}, {6, core::DependsOn::kEnded}}));
  add("queued, attempt 1 queued", queued());
  add("queued, attempt 1 queued, held", queued().tell(core::HoldRequested{"anna"}));
  add("running, attempt 1 starting on the scheduler's nodes", queued().tell(core::AttemptStarted{1, {"n1", "n2"}}));
  add("running, attempt 1 starting", fresh().tell(launched));
  add("running, attempt 1 starting, rank 0 joined", fresh().tell_all(launched, core::RankJoined{1, 0, "node1", 101}));
  add("running, attempt 1 running", running());
  add("running, attempt 1 running a command", fresh(true).tell(launched));
  add("running, attempt 1 running, rank 0 done", running().tell(exited(1, 0, 0)));
  add("stopping, attempt 1 draining: failed", running().tell(killed(1, 1, 9)));
  add("stopping, attempt 1 draining: rank_silent", running().tell(core::RankSilent{1, 1, 3s, "stopped"}));
  add("stopping, attempt 1 draining: cancelled", running().tell(core::CancelRequested{"anna"}));
  add("stopping, attempt 1 draining: requeued", running().tell(core::RequeueRequested{"anna"}));
  add("stopping, attempt 1 draining: timed_out", running().tell(core::TimeLimitReached{1}));
  add("stopping, attempt 1 draining: preempted", running().tell(exited(1, 1, core::kExitRequeue)));
  add("stopping, attempt 1 draining: preempted, the scheduler says",
      on_nodes().tell(core::AttemptStopping{1, core::Cause::kPreempted, "preempted by a job of partition high"}));
  add("stopping, attempt 1 draining: node_failed", on_nodes().tell(core::NodeLost{1, "n2", 3s}));
  add("stopping, attempt 1 draining: cancelled in the queue", queued().tell(core::CancelRequested{"anna"}));
  add("stopping, attempt 1 draining: failed, then cancelled",
      running().tell_all(killed(1, 1, 9), core::CancelRequested{"anna"}));
  add("stopping, attempt 1 draining: failed, then requeued",
      running().tell_all(killed(1, 1, 9), core::RequeueRequested{"anna"}));
  add("waiting, attempt 1 ended: failed", running().tell_all(killed(1, 1, 9), killed(1, 0, 15)));
  add("waiting, attempt 1 ended: failed, held",
      running().tell_all(core::HoldRequested{"anna"}, killed(1, 1, 9), killed(1, 0, 15)));
  add("succeeded, attempt 1 ended: completed", running().tell_all(exited(1, 0, 0), exited(1, 1, 0)));
  add("failed, attempt 1 ended: failed", running().tell_all(exited(1, 0, 93), exited(1, 1, 93)));
  add("cancelled before any attempt", fresh().tell(core::CancelRequested{"anna"}));
  add("cancelled, attempt 1 ended: cancelled",
      running().tell_all(core::CancelRequested{"anna"}, exited(1, 0, 99), exited(1, 1, 99)));
  add("failed, removed", running().tell_all(exited(1, 0, 93), exited(1, 1, 93), core::JobRemoved{"anna"}));
  for (auto& state : all) state.story.wait(1s);
  return all;
}

struct NamedEvent {
  std::string name;
  core::EventBody body;
};

/// Each kind of event about attempt 1, its variants that matter, and launches of the attempt after.
std::vector<NamedEvent> events() {
  return {
      {"job_submitted", submitted()},
      {"attempt_launched 1", core::AttemptLaunched{1, "handle-1", "node1", {}}},
      {"attempt_launched 2", core::AttemptLaunched{2, "handle-2", "node1", {}}},
      {"attempt_launched 1, queued", core::AttemptLaunched{1, "Slurm job 12", "", {}, true}},
      {"attempt_started 1", core::AttemptStarted{1, {"n1", "n2"}}},
      {"attempt_stopping 1, preempted", core::AttemptStopping{1, core::Cause::kPreempted, "preempted by job 90"}},
      {"attempt_stopping 1, preempted without grace",
       core::AttemptStopping{1, core::Cause::kPreempted, "preempted by job 90", false}},
      {"attempt_stopping 1, requeued", core::AttemptStopping{1, core::Cause::kRequeued, "requeued by scontrol"}},
      {"attempt_stopping 1, timed_out", core::AttemptStopping{1, core::Cause::kTimedOut, ""}},
      {"attempt_launch_failed 1, retryable", core::AttemptLaunchFailed{1, "no free port", true}},
      {"attempt_launch_failed 2, retryable", core::AttemptLaunchFailed{2, "no free port", true}},
      {"attempt_launch_failed 1, hopeless", core::AttemptLaunchFailed{1, "/no/such/program: not found", false}},
      {"rank_joined 0", core::RankJoined{1, 0, "node1", 101}},
      {"rank_joined 1", core::RankJoined{1, 1, "node1", 102}},
      {"attempt_resumed 30", core::AttemptResumed{1, 30}},
      {"checkpoint_saved 40", core::CheckpointSaved{1, 40}},
      {"program_described", core::ProgramDescribed{1, 9000, R"({"lr":0.1})"}},
      {"rank_exited 1 with 0", exited(1, 1, 0)},
      {"checkpoint_folder_seen, 2 new", core::CheckpointFolderSeen{1, 2, "step-40", ""}},
      {"checkpoint_folder_seen, unreadable", core::CheckpointFolderSeen{1, 0, "", "/data/ckpt gave no answer"}},
      {"rank_exited 1 with 3", exited(1, 1, 3, "no file data.bin")},
      {"rank_exited 1 with 3 and the program's error",
       core::RankExited{1, 1, {3, 0}, false, "", "RuntimeError: CUDA error: device-side assert triggered"}},
      {"rank_exited 1 with 93", exited(1, 1, core::kExitNeverRequeue, "bad model size")},
      {"rank_exited 1 with 94", exited(1, 1, core::kExitFenced)},
      {"rank_exited 1 with 97", exited(1, 1, core::kExitOutOfMemory)},
      {"rank_exited 1 with 99", exited(1, 1, core::kExitRequeue)},
      {"rank_exited 1 by SIGKILL", killed(1, 1, 9)},
      {"rank_exited 1 by SIGKILL, out of memory", core::RankExited{1, 1, {0, 9}, true, ""}},
      {"rank_exited 9 with 3 (no such rank)", exited(1, 9, 3)},
      {"rank_silent 1", core::RankSilent{1, 1, 3100ms, "stopped"}},
      {"node_lost n2", core::NodeLost{1, "n2", 3200ms}},
      {"rank_hung 1", core::RankHung{1, 1, "data", 65s}},
      {"attempt_suspected, hung",
       core::AttemptSuspected{1, core::Suspicion::kHung, 1, 1, "", "step", 12s, 10s, 600s, 200}},
      {"attempt_suspected, unheard", core::AttemptSuspected{.attempt = 1,
                                                            .of = core::Suspicion::kUnheard,
                                                            .first_rank = 1,
                                                            .ranks = 1,
                                                            .node = "n2",
                                                            .lasts = 15s,
                                                            .ends_after = 600s}},
      {"suspicion_over", core::SuspicionOver{1, core::Suspicion::kHung, 40s}},
      {"time_limit_reached", core::TimeLimitReached{1}},
      {"attempt_gone, controller_lost", core::AttemptGone{1, core::Cause::kControllerLost, "no trace of it"}},
      {"attempt_gone, node_failed", core::AttemptGone{1, core::Cause::kNodeFailed, "node1 is down"}},
      {"attempt_gone, completed", core::AttemptGone{1, core::Cause::kCompleted, "the scheduler says: completed"}},
      {"attempt_gone, cancelled", core::AttemptGone{1, core::Cause::kCancelled, "cancelled in the scheduler"}},
      {"cancel_requested", core::CancelRequested{"ben"}},
      {"requeue_requested", core::RequeueRequested{"ben"}},
      {"hold_requested", core::HoldRequested{"ben"}},
      {"release_requested", core::ReleaseRequested{"ben"}},
      {"time_limit_changed to 2 h", core::TimeLimitChanged{"ben", 2h}},
      {"time_limit_changed to none", core::TimeLimitChanged{"ben", 0s}},
      {"time_limit_answered, 2 h taken", core::TimeLimitAnswered{1, 2h, ""}},
      {"time_limit_answered, 2 h refused", core::TimeLimitAnswered{1, 2h, "permission denied"}},
      {"job_removed", core::JobRemoved{"ben"}},
      {"dependency_ended, job 5 succeeded", core::DependencyEnded{5, core::JobState::kSucceeded}},
      {"dependency_ended, job 5 failed", core::DependencyEnded{5, core::JobState::kFailed}},
      {"dependency_ended, job 6 cancelled", core::DependencyEnded{6, core::JobState::kCancelled}},
  };
}

std::string action_text(const core::Action& action) {
  if (const auto* start = std::get_if<core::StartAttempt>(&action)) {
    return "start attempt " + std::to_string(start->attempt) + " at " +
           std::to_string(start->not_before.time_since_epoch().count()) + " ms";
  }
  if (const auto* hold = std::get_if<core::HoldAttempt>(&action)) {
    return (hold->hold ? "hold attempt " : "release attempt ") + std::to_string(hold->attempt);
  }
  if (const auto* limit = std::get_if<core::LimitAttempt>(&action)) {
    return "limit attempt " + std::to_string(limit->attempt) + " to " + std::to_string(limit->time_limit.count()) +
           " ms";
  }
  if (std::holds_alternative<core::RemoveFiles>(action)) return "remove files";
  const auto& stop = std::get<core::StopAttempt>(action);
  return "stop attempt " + std::to_string(stop.attempt) + (stop.save ? ", save first" : ", no saving") + ": " +
         stop.reason;
}

std::string state_text(const core::Job& job) {
  std::string text(to_string(job.state));
  if (job.current() == nullptr) return text;
  const core::Attempt& attempt = *job.current();
  return text + ", attempt " + std::to_string(attempt.number) + " " + std::string(to_string(attempt.state)) +
         ", cause " + std::string(to_string(attempt.cause));
}

/// The job without the fields that every event changes.
core::Job same(core::Job job) {
  job.version = 0;
  return job;
}

std::string row(const Story& before, const NamedEvent& event) {
  const core::Applied after = core::apply(before.job, {before.now, event.body});
  std::ostringstream text;
  text << "  " << event.name << "\n";
  text << "    " << (same(after.job) == same(before.job) ? "nothing changes" : state_text(after.job)) << "\n";
  for (const auto& action : after.actions) text << "    do   " << action_text(action) << "\n";
  text << "    text " << after.text << "\n";
  if (after.job.reason != before.job.reason && after.job.reason != after.text) {
    text << "    why  " << after.job.reason << "\n";
  }
  return text.str();
}

TEST(JobStatesGolden, EveryStateTakesEveryEventAsReviewed) {
  std::ostringstream table;
  table
      << "Every state x every event. Now is 3000 ms or later; attempt 1 has two ranks. do: action; why: the job's own "
         "reason where it is another than the text.\n";
  for (const auto& state : states()) {
    table << "\n" << state.name << "\n";
    const auto may = [&](const char* what, const core::EventBody& request) {
      const auto refusal = core::refusal_text(state.story.job, request);
      table << "  may " << what << ": " << (refusal.empty() ? "yes" : refusal) << "\n";
    };
    may("cancel", core::CancelRequested{});
    may("requeue", core::RequeueRequested{});
    may("hold", core::HoldRequested{});
    may("release", core::ReleaseRequested{});
    may("change the time limit", core::TimeLimitChanged{});
    may("remove", core::JobRemoved{});
    for (const auto& event : events()) table << row(state.story, event);
  }
  expect_golden("job_states.txt", table.str());
}

TEST(JobStatesGolden, TheTableHasEveryStateAndEveryKindOfEvent) {
  std::set<core::JobState> job_states;
  std::set<core::AttemptState> attempt_states;
  for (const auto& state : states()) {
    job_states.insert(state.story.job.state);
    if (state.story.job.current() != nullptr) attempt_states.insert(state.story.job.current()->state);
  }
  EXPECT_EQ(job_states.size(), core::kAllJobStates.size());
  EXPECT_EQ(attempt_states.size(), 5U);
  std::set<std::size_t> kinds;
  for (const auto& event : events()) kinds.insert(event.body.index());
  EXPECT_EQ(kinds.size(), std::variant_size_v<core::EventBody>);
}

TEST(StoriesGolden, EverySectionIsOfATest) {
  expect_sections_of_tests("stories.txt");
}

TEST(JobStatesGolden, NamesReadBack) {
  for (const core::JobState state : core::kAllJobStates) {
    EXPECT_EQ(core::job_state_from_string(to_string(state)), state);
  }
  for (int i = 0; i <= static_cast<int>(core::Cause::kRequeued); ++i) {
    const auto cause = static_cast<core::Cause>(i);
    EXPECT_EQ(core::cause_from_string(to_string(cause)), cause);
  }
  for (const auto on : {core::DependsOn::kSucceeded, core::DependsOn::kFailed, core::DependsOn::kEnded}) {
    EXPECT_EQ(core::depends_on_from_string(to_string(on)), on);
  }
  EXPECT_EQ(core::depends_on_from_string("nonsense"), std::nullopt);
  EXPECT_EQ(core::attempt_state_from_string("queued"), core::AttemptState::kQueued);
  EXPECT_EQ(core::job_state_from_string("nonsense"), std::nullopt);
  EXPECT_EQ(core::cause_from_string("nonsense"), std::nullopt);
}

}  // namespace
}  // namespace test
