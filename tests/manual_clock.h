#pragma once

#include <atomic>
#include <cstdint>

#include "controller/common/clock.h"

namespace common {

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
