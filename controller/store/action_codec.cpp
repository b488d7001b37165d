#include "store/action_codec.h"

#include "store/json_fields.h"
#include "store/store.h"

namespace store {

namespace {

template <typename Archive, typename A>
requires std::is_same_v<std::remove_const_t<A>, core::StartAttempt>
void fields(Archive& archive, A& action) {
  archive("attempt", action.attempt);
  archive("not_before_ms", action.not_before);
}
template <typename Archive, typename A>
requires std::is_same_v<std::remove_const_t<A>, core::StopAttempt>
void fields(Archive& archive, A& action) {
  archive("attempt", action.attempt);
  archive("save", action.save);
  archive("reason", action.reason);
}
template <typename Archive, typename A>
requires std::is_same_v<std::remove_const_t<A>, core::HoldAttempt>
void fields(Archive& archive, A& action) {
  archive("attempt", action.attempt);
  archive("hold", action.hold);
}
template <typename Archive, typename A>
requires std::is_same_v<std::remove_const_t<A>, core::LimitAttempt>
void fields(Archive& archive, A& action) {
  archive("attempt", action.attempt);
  archive("time_limit_ms", action.time_limit);
}
template <typename Archive, typename A>
requires std::is_same_v<std::remove_const_t<A>, core::RemoveFiles>
void fields(Archive&, A&) {}

struct Kind {
  std::string_view operator()(const core::StartAttempt&) const { return "start_attempt"; }
  std::string_view operator()(const core::StopAttempt&) const { return "stop_attempt"; }
  std::string_view operator()(const core::HoldAttempt&) const { return "hold_attempt"; }
  std::string_view operator()(const core::LimitAttempt&) const { return "limit_attempt"; }
  std::string_view operator()(const core::RemoveFiles&) const { return "remove_files"; }
};

template <typename A>
core::Action read(const nlohmann::json& json) {
  A action;
  JsonReader reader(json);
  fields(reader, action);
  return action;
}

}  // namespace

std::string_view action_kind(const core::Action& action) {
  return std::visit(Kind{}, action);
}

std::string encode_action(const core::Action& action) {
  JsonWriter writer;
  std::visit([&](const auto& fact) { fields(writer, fact); }, action);
  return writer.text();
}

core::Action decode_action(std::string_view kind, std::string_view payload) {
  try {
    const auto json = nlohmann::json::parse(payload);
    if (kind == Kind{}(core::StartAttempt{})) return read<core::StartAttempt>(json);
    if (kind == Kind{}(core::StopAttempt{})) return read<core::StopAttempt>(json);
    if (kind == Kind{}(core::HoldAttempt{})) return read<core::HoldAttempt>(json);
    if (kind == Kind{}(core::LimitAttempt{})) return read<core::LimitAttempt>(json);
    if (kind == Kind{}(core::RemoveFiles{})) return read<core::RemoveFiles>(json);
  } catch (const nlohmann::json::exception& error) {
    throw Error(Error::Kind::kCorrupt,
                "a stored action of kind \"" + std::string(kind) + "\" cannot be read: " + error.what());
  }
  throw Error(Error::Kind::kNewer, "an action of kind \"" + std::string(kind) +
                                       "\" is unknown to this version of muster: use the one that wrote it");
}

}  // namespace store
