#include "controller/store/codec.h"

#include <algorithm>
#include <boost/describe.hpp>
#include <boost/mp11.hpp>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/words.h"
#include "controller/store/store.h"

// BOOST_DESCRIBE_STRUCT lists the stored members of a type once, for writing and reading. Their names are stored for
// ever. The name of a time or of a duration ends in "_ms". A reader ignores unknown names and keeps the default of
// missing ones, so a member may be added at any time.

namespace spec {

BOOST_DESCRIBE_STRUCT(ExitStatus, (), (code, signal))

BOOST_DESCRIBE_STRUCT(Dependency, (), (job, on))

}  // namespace spec

namespace core {

BOOST_DESCRIBE_STRUCT(RequeuePolicy, (),
                      (max_failed, max_rank_silent, max_rank_hung, max_preempted, max_timed_out, max_node_failed,
                       max_out_of_memory, max_controller_lost, max_same_error, backoff_initial, backoff_max,
                       healthy_after))
BOOST_DESCRIBE_STRUCT(SweepElement, (), (sweep, index, parallel))

BOOST_DESCRIBE_STRUCT(JobSubmitted, (),
                      (name, user, is_command, world_size, time_limit, policy, held, after, sweep, error_rules,
                       tells_steps))
BOOST_DESCRIBE_STRUCT(SchedulerJob, (), (number, element))
BOOST_DESCRIBE_STRUCT(GpuIdentity, (), (number, gpu))
BOOST_DESCRIBE_STRUCT(Drain, (), (since, user, reason))
BOOST_DESCRIBE_STRUCT(MachineShare, (), (gpus, cores, known))
BOOST_DESCRIBE_STRUCT(AttemptLaunched, (), (attempt, handle, node, pids, queued, time_limit, scheduler_job, share))
BOOST_DESCRIBE_STRUCT(AttemptLaunchFailed, (), (attempt, reason, retryable))
BOOST_DESCRIBE_STRUCT(AttemptStarted, (), (attempt, nodes, seen_there))
BOOST_DESCRIBE_STRUCT(AttemptStopping, (), (attempt, cause, reason, save))
BOOST_DESCRIBE_STRUCT(AttemptResumed, (), (attempt, step))
BOOST_DESCRIBE_STRUCT(AttemptGone, (), (attempt, cause, reason))
BOOST_DESCRIBE_STRUCT(RankJoined, (), (attempt, rank, node, pid))
BOOST_DESCRIBE_STRUCT(RankExited, (),
                      (attempt, rank, exit, out_of_memory, last_words, error, step, trace, status, bad_lines,
                       first_bad_line, source_trouble, attempt_step))
BOOST_DESCRIBE_STRUCT(RankSilent, (), (attempt, rank, silent_for, seen))
BOOST_DESCRIBE_STRUCT(RankHung, (),
                      (attempt, rank, section, no_progress_for, limit, learned_from, only_one_reports, usual, source,
                       learned_in))
BOOST_DESCRIBE_STRUCT(AttemptSuspected, (),
                      (attempt, of, first_rank, ranks, node, section, lasts, limit, ends_after, learned_from,
                       only_one_reports, stands_after, source, learned_in))
BOOST_DESCRIBE_STRUCT(SuspicionOver, (), (attempt, of, after))
BOOST_DESCRIBE_STRUCT(NodeLost, (), (attempt, node, silent_for, why, only_this_job))
BOOST_DESCRIBE_STRUCT(CheckpointSaved, (), (attempt, step, saved_at, path, bytes))
BOOST_DESCRIBE_STRUCT(ProgramDescribed, (), (attempt, total_steps, config))
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

BOOST_DESCRIBE_STRUCT(StartAttempt, (), (attempt, not_before))
BOOST_DESCRIBE_STRUCT(StopAttempt, (), (attempt, save, reason))
BOOST_DESCRIBE_STRUCT(HoldAttempt, (), (attempt, hold))
BOOST_DESCRIBE_STRUCT(LimitAttempt, (), (attempt, time_limit))
BOOST_DESCRIBE_STRUCT(RemoveFiles, (), ())

}  // namespace core

namespace store {
namespace {

template <typename T>
inline constexpr bool is_time = std::is_same_v<T, core::Millis> || std::is_same_v<T, core::Time>;

/// Calls each(name, member) for every stored member of `value`.
template <typename T, typename Each>
void for_each_field(T& value, Each each) {
  using Members = boost::describe::describe_members<std::remove_const_t<T>, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Members>([&](auto field) {
    auto& member = value.*field.pointer;
    constexpr bool in_ms = is_time<std::remove_cvref_t<decltype(member)>>;
    each(std::string(field.name) + (in_ms ? "_ms" : ""), member);
  });
}

void write_text(const std::string& text, std::string& out) {
  const bool is_plain =
      std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; });
  if (!is_plain) {
    out += nlohmann::json(base::valid_utf8(text)).dump();
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

/// Appends the value as JSON: a member to a struct's object, null for nullopt. Written as text, since a sweep stores
/// ten thousand events at once and a tree of them takes five times as long.
template <typename T>
void write_stored(const T& value, std::string& out) {
  if constexpr (std::is_same_v<T, core::Time>) {
    write_stored(value.time_since_epoch(), out);
  } else if constexpr (std::is_same_v<T, core::Millis>) {
    out += std::to_string(value.count());
  } else if constexpr (std::is_enum_v<T>) {
    write_text(std::string(to_string(value)), out);
  } else if constexpr (std::is_same_v<T, std::string>) {
    write_text(value, out);
  } else if constexpr (std::is_same_v<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    out += std::to_string(value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    out += nlohmann::json(value).dump();
  } else if constexpr (requires { value.has_value(); }) {
    if (value) {
      write_stored(*value, out);
    } else {
      out += "null";
    }
  } else if constexpr (requires { typename T::value_type; }) {
    out += '[';
    for (const auto& entry : value) {
      if (out.back() != '[') out += ',';
      write_stored(entry, out);
    }
    out += ']';
  } else {
    out += '{';
    for_each_field(value, [&](std::string_view name, const auto& member) {
      if (out.back() != '{') out += ',';
      out += '"';
      out += name;
      out += "\":";
      write_stored(member, out);
    });
    out += '}';
  }
}

template <typename T>
std::string stored_text(const T& value) {
  std::string text;
  write_stored(value, text);
  return text;
}

// A newer muster may know further words. The reason tells more about a cause.
void from_word(std::string_view word, core::Cause& cause) {
  cause = core::cause_from_string(word).value_or(core::Cause::kFailed);
}
void from_word(std::string_view word, core::JobState& state) {
  state = core::job_state_from_string(word).value_or(core::JobState::kPending);
}
void from_word(std::string_view word, core::Suspicion& suspicion) {
  suspicion = core::suspicion_from_string(word).value_or(core::Suspicion::kHung);
}
void from_word(std::string_view word, core::LimitSource& source) {
  source = core::limit_source_from_string(word).value_or(core::LimitSource::kNotTold);
}
void from_word(std::string_view word, core::DependsOn& on) {
  on = core::depends_on_from_string(word).value_or(core::DependsOn::kSucceeded);
}

/// Throws nlohmann::json::exception if the value, or one in it, has the wrong type.
template <typename T>
void from_stored(const nlohmann::json& json, T& value) {
  if constexpr (is_time<T>) {
    value = T(core::Millis(json.get<std::int64_t>()));
  } else if constexpr (std::is_enum_v<T>) {
    from_word(json.get_ref<const std::string&>(), value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    value = json.get<T>();
  } else if constexpr (requires { value.has_value(); }) {
    if (!json.is_null()) from_stored(json, value.emplace());
  } else if constexpr (requires { typename T::value_type; }) {
    for (const auto& entry : json.get_ref<const nlohmann::json::array_t&>()) from_stored(entry, value.emplace_back());
  } else {
    const auto& fields = json.get_ref<const nlohmann::json::object_t&>();
    for_each_field(value, [&](const std::string& name, auto& member) {
      if (const auto found = fields.find(name); found != fields.end()) from_stored(found->second, member);
    });
  }
}

/// The kind and name of a stored text, for errors: "event of type \"rank_joined\"".
struct Stored {
  const char* kind;
  std::string_view name;
  std::string text() const { return std::string(kind) + " \"" + std::string(name) + "\""; }
};

/// The alternative of the variant that has this name, with default members.
template <typename Variant>
Variant blank(const Stored& what) {
  std::optional<Variant> result;
  boost::mp11::mp_for_each<boost::mp11::mp_iota_c<std::variant_size_v<Variant>>>([&](auto index) {
    if (std::variant_alternative_t<index, Variant>::kName == what.name) result.emplace(std::in_place_index<index>);
  });
  if (result) return *result;
  throw Error(Error::Kind::kNewer,
              "an " + what.text() + " is unknown to this version of muster: use the one that wrote it");
}

template <typename Read>
void read_stored(std::string_view payload, const Stored& what, Read read) {
  try {
    read(nlohmann::json::parse(payload));
  } catch (const nlohmann::json::exception& error) {
    throw Error(Error::Kind::kCorrupt, "a stored " + what.text() + " cannot be read: " + error.what());
  }
}

/// Raise it when a field changes its meaning, and let decode_event() translate the older shape.
constexpr int kShapeVersion = 1;

}  // namespace

std::string encode_event(const core::EventBody& body) {
  const auto fields = std::visit([](const auto& event) { return stored_text(event); }, body);
  return "{\"v\":" + std::to_string(kShapeVersion) + (fields == "{}" ? "}" : "," + fields.substr(1));
}

core::EventBody decode_event(std::string_view type, std::string_view payload) {
  const Stored what{"event of type", type};
  auto body = blank<core::EventBody>(what);
  read_stored(payload, what, [&](const nlohmann::json& json) {
    if (json.at("v").get<int>() > kShapeVersion) {
      throw Error(Error::Kind::kNewer,
                  "an " + what.text() + " was written by a newer muster: use that version or a later one");
    }
    std::visit([&](auto& event) { from_stored(json, event); }, body);
  });
  return body;
}

std::string_view action_kind(const core::Action& action) {
  return std::visit([](const auto& fields) { return fields.kName; }, action);
}

std::string encode_action(const core::Action& action) {
  return std::visit([](const auto& fields) { return stored_text(fields); }, action);
}

core::Action decode_action(std::string_view kind, std::string_view payload) {
  const Stored what{"action of kind", kind};
  auto action = blank<core::Action>(what);
  read_stored(payload, what, [&](const nlohmann::json& json) {
    std::visit([&](auto& fields) { from_stored(json, fields); }, action);
  });
  return action;
}

std::string encode_drain(const std::optional<core::Drain>& drain) {
  return drain ? stored_text(*drain) : std::string();
}

std::optional<core::Drain> decode_drain(std::string_view payload) {
  if (payload.empty()) return std::nullopt;
  core::Drain drain;
  read_stored(payload, {"order to drain", ""}, [&](const nlohmann::json& json) { from_stored(json, drain); });
  return drain;
}

std::string encode_share(const core::MachineShare& share) {
  return stored_text(share);
}

core::MachineShare decode_share(std::string_view payload) {
  core::MachineShare share;
  read_stored(payload, {"share of the machine", ""}, [&](const nlohmann::json& json) { from_stored(json, share); });
  return share;
}

}  // namespace store
