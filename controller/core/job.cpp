#include "controller/core/job.h"

#include "base/numbers.h"

namespace core {
namespace {

// The names are stored and shown, so they never change.

template <typename Enum>
struct Named {
  Enum value;
  std::string_view name;
};

constexpr Named<Cause> kCauses[]{{Cause::kNone, "none"},
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
                                 {Cause::kRequeued, "requeued"}};
constexpr Named<JobState> kJobStates[]{{JobState::kPending, "pending"}, {JobState::kQueued, "queued"},
                                       {JobState::kRunning, "running"}, {JobState::kStopping, "stopping"},
                                       {JobState::kWaiting, "waiting"}, {JobState::kSucceeded, "succeeded"},
                                       {JobState::kFailed, "failed"},   {JobState::kCancelled, "cancelled"}};
constexpr Named<AttemptState> kAttemptStates[]{{AttemptState::kQueued, "queued"},
                                               {AttemptState::kStarting, "starting"},
                                               {AttemptState::kRunning, "running"},
                                               {AttemptState::kDraining, "draining"},
                                               {AttemptState::kEnded, "ended"}};
constexpr Named<RankState> kRankStates[]{{RankState::kStarting, "starting"},
                                         {RankState::kRunning, "running"},
                                         {RankState::kSilent, "silent"},
                                         {RankState::kExited, "exited"}};
constexpr Named<Suspicion> kSuspicions[]{{Suspicion::kHung, "hung"}, {Suspicion::kUnheard, "unheard"}};
constexpr Named<LimitSource> kLimitSources[]{{LimitSource::kNotTold, ""},
                                             {LimitSource::kUser, "user"},
                                             {LimitSource::kLearned, "learned"},
                                             {LimitSource::kNotLearnedYet, "not_learned_yet"}};

template <typename Enum, std::size_t Size>
consteval bool names_all(const Named<Enum> (&rows)[Size]) {
  return std::ranges::equal(rows, all_of<Enum>(), {}, &Named<Enum>::value);
}
static_assert(names_all(kCauses) && names_all(kJobStates) && names_all(kAttemptStates) && names_all(kRankStates) &&
              names_all(kSuspicions) && names_all(kLimitSources));

template <typename Enum, std::size_t Size>
std::string_view name_in(const Named<Enum> (&rows)[Size], Enum value) {
  return rows[static_cast<std::size_t>(value)].name;
}

template <typename Enum, std::size_t Size>
std::optional<Enum> value_in(const Named<Enum> (&rows)[Size], std::string_view name) {
  const auto* found = std::ranges::find(rows, name, &Named<Enum>::name);
  return found == std::end(rows) ? std::nullopt : std::optional(found->value);
}

}  // namespace

std::string_view to_string(Cause cause) {
  return name_in(kCauses, cause);
}

std::optional<Cause> cause_from_string(std::string_view text) {
  return value_in(kCauses, text);
}

std::string_view to_string(JobState state) {
  return name_in(kJobStates, state);
}

std::optional<JobState> job_state_from_string(std::string_view text) {
  return value_in(kJobStates, text);
}

std::string_view to_string(AttemptState state) {
  return name_in(kAttemptStates, state);
}

std::optional<AttemptState> attempt_state_from_string(std::string_view text) {
  return value_in(kAttemptStates, text);
}

std::string_view to_string(RankState state) {
  return name_in(kRankStates, state);
}

std::string_view to_string(Suspicion suspicion) {
  return name_in(kSuspicions, suspicion);
}

std::optional<Suspicion> suspicion_from_string(std::string_view text) {
  return value_in(kSuspicions, text);
}

std::string_view to_string(LimitSource source) {
  return name_in(kLimitSources, source);
}

std::optional<LimitSource> limit_source_from_string(std::string_view text) {
  return value_in(kLimitSources, text);
}

std::string to_string(const SchedulerJob& job) {
  return std::to_string(job.number) + (job.element ? "_" + std::to_string(*job.element) : "");
}

bool is_ended(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed || state == JobState::kCancelled;
}

bool is_idle(const Job& job) {
  return job.state == JobState::kPending || job.state == JobState::kWaiting;
}

bool is_upcoming(const Job& job, AttemptNumber number) {
  if (job.cancel_requested || is_ended(job.state) || !job.dependencies_met()) return false;
  const auto* newest = job.current();
  if (newest != nullptr && newest->number == number) {
    return newest->state == AttemptState::kStarting && !newest->started_at && !newest->queued_at;
  }
  const bool between = newest == nullptr || newest->state == AttemptState::kEnded;
  return between && number == (newest == nullptr ? 1 : newest->number + 1);
}

}  // namespace core
