#pragma once

#include <optional>
#include <string>

#include "controller/core/job.h"

namespace common {

/// The only source of time in musterd, so that tests own it.
class Clock {
 public:
  virtual ~Clock() = default;
  /// The time that people read; may jump when the machine's clock is set.
  virtual core::Time wall() const = 0;
  /// Since an arbitrary beginning; never goes back. What every wait and limit is measured with.
  virtual core::Millis monotonic() const = 0;
};

class RealClock : public Clock {
 public:
  core::Time wall() const override {
    return std::chrono::time_point_cast<core::Millis>(std::chrono::system_clock::now());
  }
  core::Millis monotonic() const override {
    return std::chrono::duration_cast<core::Millis>(std::chrono::steady_clock::now().time_since_epoch());
  }
};

/// RFC 3339, UTC, milliseconds: "2026-11-20T19:45:24.123Z".
std::string time_text(core::Time time);
/// Empty: not yet.
std::string time_text(const std::optional<core::Time>& time);

}  // namespace common
