#pragma once

#include <string>
#include <string_view>

#include "core/apply.h"

namespace store {

/// "start_attempt", "stop_attempt".
std::string_view action_kind(const core::Action& action);
/// The action's fields as one JSON object.
std::string encode_action(const core::Action& action);
/// Decodes encode_action(). Throws Error: kCorrupt for any other text, kNewer for an unknown kind.
core::Action decode_action(std::string_view kind, std::string_view payload);

}  // namespace store
