#pragma once

#include <string>
#include <string_view>

#include "controller/core/apply.h"

namespace store {

// The stored form of events and actions: one JSON object with their fields. Text is made valid UTF-8. An event's type
// and time and an action's kind have columns of their own. Decoding throws Error: kCorrupt for a text that was not
// encoded here, kNewer for a type, kind or shape of a newer muster.

/// With the version `v` of the event's shape.
std::string encode_event(const core::EventBody& body);
core::EventBody decode_event(std::string_view type, std::string_view payload);

/// "start_attempt", "stop_attempt".
std::string_view action_kind(const core::Action& action);
std::string encode_action(const core::Action& action);
core::Action decode_action(std::string_view kind, std::string_view payload);

std::string encode_share(const core::MachineShare& share);
core::MachineShare decode_share(std::string_view payload);

/// Empty for no order.
std::string encode_drain(const std::optional<core::Drain>& drain);
std::optional<core::Drain> decode_drain(std::string_view payload);

}  // namespace store
