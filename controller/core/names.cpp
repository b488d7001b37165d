// The names of states, causes and events. The names are stored and shown, so they never change.
#include "core/apply.h"

namespace core {

namespace {

constexpr std::array<std::pair<Cause, std::string_view>, 12> kCauses{{
    {Cause::kNone, "none"},
    {Cause::kCompleted, "completed"},
    {Cause::kFailed, "failed"},
    {Cause::kRankSilent, "rank_silent"},
    {Cause::kRankHung, "rank_hung"},
    {Cause::kCancelled, "cancelled"},
    {Cause::kPreempted, "preempted"},
    {Cause::kTimedOut, "timed_out"},
    {Cause::kNodeFailed, "node_failed"},
    {Cause::kOutOfMemory, "out_of_memory"},
    {Cause::kControllerLost, "controller_lost"},
    {Cause::kRequeued, "requeued"},
}};

// A missing overload does not compile.
struct TypeName {
  std::string_view operator()(const JobSubmitted&) const { return "job_submitted"; }
  std::string_view operator()(const AttemptLaunched&) const { return "attempt_launched"; }
  std::string_view operator()(const AttemptLaunchFailed&) const { return "attempt_launch_failed"; }
  std::string_view operator()(const RankJoined&) const { return "rank_joined"; }
  std::string_view operator()(const AttemptResumed&) const { return "attempt_resumed"; }
  std::string_view operator()(const CheckpointSaved&) const { return "checkpoint_saved"; }
  std::string_view operator()(const RankExited&) const { return "rank_exited"; }
  std::string_view operator()(const RankSilent&) const { return "rank_silent"; }
  std::string_view operator()(const RankHung&) const { return "rank_hung"; }
  std::string_view operator()(const TimeLimitReached&) const { return "time_limit_reached"; }
  std::string_view operator()(const AttemptGone&) const { return "attempt_gone"; }
  std::string_view operator()(const CancelRequested&) const { return "cancel_requested"; }
  std::string_view operator()(const RequeueRequested&) const { return "requeue_requested"; }
  std::string_view operator()(const AttemptStarted&) const { return "attempt_started"; }
  std::string_view operator()(const AttemptStopping&) const { return "attempt_stopping"; }
  std::string_view operator()(const NodeLost&) const { return "node_lost"; }
  std::string_view operator()(const HoldRequested&) const { return "hold_requested"; }
  std::string_view operator()(const ReleaseRequested&) const { return "release_requested"; }
  std::string_view operator()(const TimeLimitChanged&) const { return "time_limit_changed"; }
  std::string_view operator()(const TimeLimitAnswered&) const { return "time_limit_answered"; }
  std::string_view operator()(const DependencyEnded&) const { return "dependency_ended"; }
  std::string_view operator()(const CheckpointFolderSeen&) const { return "checkpoint_folder_seen"; }
  std::string_view operator()(const JobRemoved&) const { return "job_removed"; }
};

}  // namespace

std::string_view to_string(Cause cause) {
  for (const auto& [value, name] : kCauses) {
    if (value == cause) return name;
  }
  return "unknown";
}

std::optional<Cause> cause_from_string(std::string_view text) {
  for (const auto& [value, name] : kCauses) {
    if (name == text) return value;
  }
  return std::nullopt;
}

std::string_view to_string(JobState state) {
  switch (state) {
    case JobState::kPending:
      return "pending";
    case JobState::kQueued:
      return "queued";
    case JobState::kRunning:
      return "running";
    case JobState::kStopping:
      return "stopping";
    case JobState::kWaiting:
      return "waiting";
    case JobState::kSucceeded:
      return "succeeded";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::optional<JobState> job_state_from_string(std::string_view text) {
  for (const JobState state : kAllJobStates) {
    if (to_string(state) == text) return state;
  }
  return std::nullopt;
}

bool is_ended(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed || state == JobState::kCancelled;
}

std::string_view to_string(AttemptState state) {
  switch (state) {
    case AttemptState::kQueued:
      return "queued";
    case AttemptState::kStarting:
      return "starting";
    case AttemptState::kRunning:
      return "running";
    case AttemptState::kDraining:
      return "draining";
    case AttemptState::kEnded:
      return "ended";
  }
  return "unknown";
}

std::optional<AttemptState> attempt_state_from_string(std::string_view text) {
  for (const AttemptState state : {AttemptState::kQueued, AttemptState::kStarting, AttemptState::kRunning,
                                   AttemptState::kDraining, AttemptState::kEnded}) {
    if (to_string(state) == text) return state;
  }
  return std::nullopt;
}

std::string_view to_string(RankState state) {
  switch (state) {
    case RankState::kStarting:
      return "starting";
    case RankState::kRunning:
      return "running";
    case RankState::kSilent:
      return "silent";
    case RankState::kExited:
      return "exited";
  }
  return "unknown";
}

std::string to_string(const SchedulerJob& job) {
  return std::to_string(job.number) + (job.element ? "_" + std::to_string(*job.element) : "");
}

std::string_view to_string(DependsOn condition) {
  switch (condition) {
    case DependsOn::kSucceeded:
      return "succeeded";
    case DependsOn::kFailed:
      return "failed";
    case DependsOn::kEnded:
      return "ended";
  }
  return "unknown";
}

std::optional<DependsOn> depends_on_from_string(std::string_view text) {
  for (const auto condition : {DependsOn::kSucceeded, DependsOn::kFailed, DependsOn::kEnded}) {
    if (to_string(condition) == text) return condition;
  }
  return std::nullopt;
}

std::string_view type_name(const EventBody& body) {
  return std::visit(TypeName{}, body);
}

AttemptNumber attempt_of(const EventBody& body) {
  return std::visit(
      [](const auto& event) -> AttemptNumber {
        if constexpr (requires { event.attempt; }) return event.attempt;
        return 0;
      },
      body);
}

}  // namespace core
