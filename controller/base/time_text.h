#pragma once

#include <optional>
#include <string>

#include "core/types.h"

namespace base {

/// RFC 3339, UTC, milliseconds: "2026-11-20T19:45:24.123Z".
std::string time_text(core::Time time);
/// Empty: not yet.
std::string time_text(const std::optional<core::Time>& time);

}  // namespace base
