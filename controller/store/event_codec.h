#pragma once

#include <string>
#include <string_view>

#include "core/event.h"

namespace store {

/// The event's body as it is stored for ever: one JSON object with a shape version `v` of its type. Text that is no
/// valid UTF-8 is mended. Type and time are stored beside it.
std::string encode_event(const core::EventBody& body);

/// The reverse. Throws Error: kCorrupt if it is no such object, kNewer for a type or shape of a newer muster.
core::EventBody decode_event(std::string_view type, std::string_view payload);

}  // namespace store
