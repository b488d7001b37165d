#include "store/action_codec.h"

#include "store/json_fields.h"
#include "store/store.h"

namespace core {

BOOST_DESCRIBE_STRUCT(StartAttempt, (), (attempt, not_before))
BOOST_DESCRIBE_STRUCT(StopAttempt, (), (attempt, save, reason))
BOOST_DESCRIBE_STRUCT(HoldAttempt, (), (attempt, hold))
BOOST_DESCRIBE_STRUCT(LimitAttempt, (), (attempt, time_limit))
BOOST_DESCRIBE_STRUCT(RemoveFiles, (), ())

}  // namespace core

namespace store {

std::string_view action_kind(const core::Action& action) {
  struct Kind {
    std::string_view operator()(const core::StartAttempt&) const { return "start_attempt"; }
    std::string_view operator()(const core::StopAttempt&) const { return "stop_attempt"; }
    std::string_view operator()(const core::HoldAttempt&) const { return "hold_attempt"; }
    std::string_view operator()(const core::LimitAttempt&) const { return "limit_attempt"; }
    std::string_view operator()(const core::RemoveFiles&) const { return "remove_files"; }
  };
  return std::visit(Kind{}, action);
}

std::string encode_action(const core::Action& action) {
  return std::visit([](const auto& fields) { return to_stored(fields).dump(); }, action);
}

core::Action decode_action(std::string_view kind, std::string_view payload) {
  const auto* blank = blank_of(kind, action_kind);
  if (blank == nullptr) {
    throw Error(Error::Kind::kNewer, "an action of kind \"" + std::string(kind) +
                                         "\" is unknown to this version of muster: use the one that wrote it");
  }
  core::Action action = *blank;
  try {
    std::visit([&](auto& fields) { from_stored(nlohmann::json::parse(payload), fields); }, action);
  } catch (const nlohmann::json::exception& error) {
    throw Error(Error::Kind::kCorrupt,
                "a stored action of kind \"" + std::string(kind) + "\" cannot be read: " + error.what());
  }
  return action;
}

}  // namespace store
