#pragma once

#include <string>
#include <string_view>

#include "core/event.h"

namespace store {

/// The stored form of the event's body: one JSON object with the version `v` of its shape. Text is made valid UTF-8.
/// The event's type and time have columns of their own.
std::string encode_event(const core::EventBody& body);

/// Decodes encode_event(). Throws Error: kCorrupt for any other text, kNewer for a type or shape of a newer muster.
core::EventBody decode_event(std::string_view type, std::string_view payload);

}  // namespace store
