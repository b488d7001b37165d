#include "store/event_codec.h"

#include <charconv>
#include <map>

#include "store/json_fields.h"
#include "store/store.h"

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

template <typename E, typename T>
concept Is = std::is_same_v<std::remove_const_t<E>, T>;

template <typename Archive, Is<core::JobSubmitted> E>
void fields(Archive& archive, E& e) {
  archive("name", e.name);
  archive("user", e.user);
  archive("is_command", e.is_command);
  archive("world_size", e.world_size);
  archive("time_limit_ms", e.time_limit);
  archive("policy", e.policy);
  archive("held", e.held);
  archive("after", e.after);
  archive("sweep", e.sweep);
}
template <typename Archive, Is<core::AttemptLaunched> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("handle", e.handle);
  archive("node", e.node);
  archive("pids", e.pids);
  archive("queued", e.queued);
  archive("time_limit_ms", e.time_limit);
  archive("scheduler_job", e.scheduler_job);
}
template <typename Archive, Is<core::AttemptStarted> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("nodes", e.nodes);
  archive("seen_there", e.seen_there);
}
template <typename Archive, Is<core::NodeLost> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("node", e.node);
  archive("silent_for_ms", e.silent_for);
  archive("why", e.why);
  archive("only_this_job", e.only_this_job);
}
template <typename Archive, Is<core::TimeLimitChanged> E>
void fields(Archive& archive, E& e) {
  archive("user", e.user);
  archive("time_limit_ms", e.time_limit);
}
template <typename Archive, Is<core::TimeLimitAnswered> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("time_limit_ms", e.time_limit);
  archive("refusal", e.refusal);
}
template <typename Archive, Is<core::DependencyEnded> E>
void fields(Archive& archive, E& e) {
  archive("job", e.job);
  archive("state", e.state);
}
template <typename Archive, Is<core::AttemptLaunchFailed> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("reason", e.reason);
  archive("retryable", e.retryable);
}
template <typename Archive, Is<core::RankJoined> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("rank", e.rank);
  archive("node", e.node);
  archive("pid", e.pid);
}
template <typename Archive, Is<core::AttemptResumed> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("step", e.step);
}
template <typename Archive, Is<core::CheckpointSaved> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("step", e.step);
  archive("saved_at_ms", e.saved_at);
}
template <typename Archive, Is<core::RankExited> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("rank", e.rank);
  archive("exit", e.exit);
  archive("out_of_memory", e.out_of_memory);
  archive("last_words", e.last_words);
  archive("error", e.error);
  archive("step", e.step);
}
template <typename Archive, Is<core::CheckpointFolderSeen> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("fresh", e.fresh);
  archive("newest", e.newest);
  archive("trouble", e.trouble);
  archive("new_names", e.new_names);
}
template <typename Archive, Is<core::RankSilent> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("rank", e.rank);
  archive("silent_for_ms", e.silent_for);
  archive("seen", e.seen);
}
template <typename Archive, Is<core::RankHung> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("rank", e.rank);
  archive("section", e.section);
  archive("no_progress_for_ms", e.no_progress_for);
}
template <typename Archive, Is<core::TimeLimitReached> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
}
template <typename Archive, Is<core::AttemptGone> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("cause", e.cause);
  archive("reason", e.reason);
}
template <typename Archive, Is<core::AttemptStopping> E>
void fields(Archive& archive, E& e) {
  archive("attempt", e.attempt);
  archive("cause", e.cause);
  archive("reason", e.reason);
  archive("save", e.save);
}
template <typename Archive, typename E>
requires Is<E, core::CancelRequested> || Is<E, core::RequeueRequested> || Is<E, core::HoldRequested> ||
    Is<E, core::ReleaseRequested> || Is<E, core::JobRemoved>
void fields(Archive& archive, E& e) {
  archive("user", e.user);
}

using Blanks = std::map<std::string_view, core::EventBody>;

/// Maps each type name to an event with default fields. The list comes from the variant, so no type can be forgotten.
template <std::size_t... Index>
Blanks make_blanks(std::index_sequence<Index...>) {
  Blanks blanks;
  (blanks.emplace(type_name(core::EventBody(std::in_place_index<Index>)), core::EventBody(std::in_place_index<Index>)),
   ...);
  return blanks;
}

const Blanks& blanks() {
  static const Blanks all = make_blanks(std::make_index_sequence<std::variant_size_v<core::EventBody>>{});
  return all;
}

}  // namespace

std::string encode_event(const core::EventBody& body) {
  JsonWriter writer;
  writer("v", kShapeVersion);
  std::visit([&](const auto& event) { fields(writer, event); }, body);
  return writer.text();
}

core::EventBody decode_event(std::string_view type, std::string_view payload) {
  const auto blank = blanks().find(type);
  if (blank == blanks().end()) {
    throw Error(Error::Kind::kNewer, "an event of type \"" + std::string(type) +
                                         "\" is unknown to this version of muster: use the one that wrote it");
  }
  core::EventBody body = blank->second;
  try {
    const auto json = nlohmann::json::parse(payload);
    if (json.at("v").get<int>() > kShapeVersion) {
      throw Error(Error::Kind::kNewer, "an event of type \"" + std::string(type) +
                                           "\" was written by a newer muster: use that version or a later one");
    }
    JsonReader reader(json);
    std::visit([&](auto& event) { fields(reader, event); }, body);
    fill_missing(body, json);
  } catch (const nlohmann::json::exception& error) {
    throw Error(Error::Kind::kCorrupt,
                "a stored event of type \"" + std::string(type) + "\" cannot be read: " + error.what());
  }
  return body;
}

}  // namespace store
