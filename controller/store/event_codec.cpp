#include "store/event_codec.h"

#include <charconv>

#include "store/json_fields.h"
#include "store/store.h"

namespace contract {

BOOST_DESCRIBE_STRUCT(ExitStatus, (), (code, signal))

}  // namespace contract

namespace core {

BOOST_DESCRIBE_STRUCT(RequeuePolicy, (),
                      (max_failed, max_rank_silent, max_rank_hung, max_preempted, max_timed_out, max_node_failed,
                       max_out_of_memory, max_controller_lost, max_same_error, backoff_initial, backoff_max,
                       healthy_after))
BOOST_DESCRIBE_STRUCT(Dependency, (), (job, on))
BOOST_DESCRIBE_STRUCT(SweepElement, (), (sweep, index, parallel))

BOOST_DESCRIBE_STRUCT(JobSubmitted, (), (name, user, is_command, world_size, time_limit, policy, held, after, sweep))
BOOST_DESCRIBE_STRUCT(SchedulerJob, (), (number, element))
BOOST_DESCRIBE_STRUCT(AttemptLaunched, (), (attempt, handle, node, pids, queued, time_limit, scheduler_job))
BOOST_DESCRIBE_STRUCT(AttemptLaunchFailed, (), (attempt, reason, retryable))
BOOST_DESCRIBE_STRUCT(AttemptStarted, (), (attempt, nodes, seen_there))
BOOST_DESCRIBE_STRUCT(AttemptStopping, (), (attempt, cause, reason, save))
BOOST_DESCRIBE_STRUCT(AttemptResumed, (), (attempt, step))
BOOST_DESCRIBE_STRUCT(AttemptGone, (), (attempt, cause, reason))
BOOST_DESCRIBE_STRUCT(RankJoined, (), (attempt, rank, node, pid))
BOOST_DESCRIBE_STRUCT(RankExited, (), (attempt, rank, exit, out_of_memory, last_words, error, step))
BOOST_DESCRIBE_STRUCT(RankSilent, (), (attempt, rank, silent_for, seen))
BOOST_DESCRIBE_STRUCT(RankHung, (), (attempt, rank, section, no_progress_for))
BOOST_DESCRIBE_STRUCT(NodeLost, (), (attempt, node, silent_for, why, only_this_job))
BOOST_DESCRIBE_STRUCT(CheckpointSaved, (), (attempt, step, saved_at))
BOOST_DESCRIBE_STRUCT(CheckpointFolderSeen, (), (attempt, fresh, newest, trouble, new_names))
BOOST_DESCRIBE_STRUCT(TimeLimitReached, (), (attempt))
BOOST_DESCRIBE_STRUCT(TimeLimitChanged, (), (user, time_limit))
BOOST_DESCRIBE_STRUCT(TimeLimitAnswered, (), (attempt, time_limit, refusal))
BOOST_DESCRIBE_STRUCT(DependencyEnded, (), (job, state))
BOOST_DESCRIBE_STRUCT(CancelRequested, (), (user))
BOOST_DESCRIBE_STRUCT(RequeueRequested, (), (user))
BOOST_DESCRIBE_STRUCT(HoldRequested, (), (user))
BOOST_DESCRIBE_STRUCT(ReleaseRequested, (), (user))
BOOST_DESCRIBE_STRUCT(JobRemoved, (), (user))

}  // namespace core

namespace store {

namespace {

/// Raise it when a field changes its meaning, and let decode_event() translate the older shape.
constexpr int kShapeVersion = 1;

/// NodeLost::why had this ending before the field only_this_job existed.
constexpr std::string_view kOwnCheckOfBefore = " (of this job alone)";

/// The name of an attempt on Slurm, whose number had no field of its own: "Slurm job 1234", "Slurm job 1234_5".
constexpr std::string_view kSlurmJobOfBefore = "Slurm job ";

std::optional<core::SchedulerJob> scheduler_job_of(std::string_view handle) {
  if (!handle.starts_with(kSlurmJobOfBefore)) return std::nullopt;
  core::SchedulerJob job;
  const char* end = handle.data() + handle.size();
  const auto number = std::from_chars(handle.data() + kSlurmJobOfBefore.size(), end, job.number);
  if (number.ptr != end && *number.ptr == '_') std::from_chars(number.ptr + 1, end, job.element.emplace());
  return job;
}

/// Fills the fields that older events lack from the words that told the same.
void fill_missing(core::EventBody& body, const nlohmann::json& json) {
  if (auto* lost = std::get_if<core::NodeLost>(&body); lost != nullptr && !json.contains("only_this_job")) {
    lost->only_this_job = lost->why.find(kOwnCheckOfBefore) != std::string::npos;
  }
  if (auto* launched = std::get_if<core::AttemptLaunched>(&body); launched && !json.contains("scheduler_job")) {
    launched->scheduler_job = scheduler_job_of(launched->handle);
  }
}

}  // namespace

std::string encode_event(const core::EventBody& body) {
  nlohmann::ordered_json json = {{"v", kShapeVersion}};
  json.update(std::visit([](const auto& event) { return to_stored(event); }, body));
  return json.dump();
}

core::EventBody decode_event(std::string_view type, std::string_view payload) {
  const auto* blank = blank_of(type, core::type_name);
  if (blank == nullptr) {
    throw Error(Error::Kind::kNewer, "an event of type \"" + std::string(type) +
                                         "\" is unknown to this version of muster: use the one that wrote it");
  }
  core::EventBody body = *blank;
  try {
    const auto json = nlohmann::json::parse(payload);
    if (json.at("v").get<int>() > kShapeVersion) {
      throw Error(Error::Kind::kNewer, "an event of type \"" + std::string(type) +
                                           "\" was written by a newer muster: use that version or a later one");
    }
    std::visit([&](auto& event) { from_stored(json, event); }, body);
    fill_missing(body, json);
  } catch (const nlohmann::json::exception& error) {
    throw Error(Error::Kind::kCorrupt,
                "a stored event of type \"" + std::string(type) + "\" cannot be read: " + error.what());
  }
  return body;
}

}  // namespace store
