#pragma once

#include <atomic>
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

/// Stands still until told to move. Thread-safe.
class ManualClock : public Clock {
 public:
  core::Time wall() const override { return core::Time(core::Millis(wall_offset_ms_.load() + now_ms_.load())); }
  core::Millis monotonic() const override { return core::Millis(now_ms_.load()); }
  void advance(core::Millis by) { now_ms_ += by.count(); }
  /// Somebody sets the machine's clock.
  void set_wall(core::Millis by) { wall_offset_ms_ += by.count(); }

 private:
  std::atomic<std::int64_t> now_ms_{1'000'000};
  std::atomic<std::int64_t> wall_offset_ms_{1'700'000'000'000};
};

}  // namespace common
