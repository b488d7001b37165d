#include "controller/ranks/pace.h"

#include <algorithm>
#include <cstdio>

namespace ranks {
namespace {

/// Late for so long, and so long after the interval grew, it grows again.
constexpr core::Millis kLateFor{500};
constexpr core::Millis kGrowAgainAfter{3000};
/// The interval shrank too early if it grows again within this.
constexpr core::Millis kTooEarly{60'000};

std::string seconds_text(core::Millis time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(time.count()) / 1000);
  return text;
}

}  // namespace

void Pace::restarted(core::Millis now) {
  {
    const std::lock_guard lock(mutex_);
    restarted_at_ = now;
  }
  came_back(now);
}

void Pace::came_back(core::Millis now) {
  const std::lock_guard lock(mutex_);
  if (!restarted_at_ || now - *restarted_at_ >= kComeBack) return;
  longest_ = kMostFloor;
  longest_until_ = std::max(longest_until_, now + kFresh);
}

void Pace::note(core::Millis lag, core::Millis now) {
  const std::lock_guard lock(mutex_);
  lag_ = lag;
  if (now >= longest_until_) longest_ = floor_;
  if (lag >= kLate) {
    if (!late_) late_since_ = now;
    late_ = true;
    const bool may_grow = floor_ == core::Millis(0) || now - changed_at_ >= kGrowAgainAfter;
    if (now - late_since_ >= kLateFor && may_grow && floor_ < kMostFloor) grow(now);
    fine_since_ = now;
    return;
  }
  late_ = false;
  if (lag > kInTime) fine_since_ = now;
  if (floor_ > core::Millis(0) && now - std::max(fine_since_, changed_at_) >= calm_) shrink(now);
}

void Pace::grow(core::Millis now) {
  const bool too_early = shrunk_at_ > core::Millis(0) && now - shrunk_at_ < kTooEarly;
  calm_ = too_early ? std::min(calm_ * 2, kMostCalm) : kCalm;
  floor_ = std::max(kLeastFloor, floor_ * 2);
  longest_ = std::max(longest_, floor_);
  changed_at_ = now;
}

void Pace::shrink(core::Millis now) {
  // Each rank learns it with the answer to its next heartbeat.
  longest_until_ = std::max(longest_until_, now + kMissedAfter * floor_);
  floor_ = floor_ > kLeastFloor ? floor_ / 2 : core::Millis(0);
  changed_at_ = shrunk_at_ = now;
}

Pace::State Pace::state() const {
  const std::lock_guard lock(mutex_);
  if (late_) return State::kOverloaded;
  return floor_ > core::Millis(0) ? State::kSlowed : State::kFine;
}

core::Millis Pace::floor() const {
  const std::lock_guard lock(mutex_);
  return floor_;
}

core::Millis Pace::interval(core::Millis of_job) const {
  return std::max(of_job, floor());
}

core::Millis Pace::grace(core::Millis silent_after) const {
  const std::lock_guard lock(mutex_);
  const auto longest = std::max(floor_, longest_);
  if (longest == core::Millis(0)) return core::Millis(0);
  return std::max(core::Millis(0), kMissedAfter * longest - silent_after);
}

std::string Pace::problem() const {
  const auto now = state();
  if (now == State::kFine) return {};
  const std::lock_guard lock(mutex_);
  std::string text = now == State::kOverloaded
                         ? "overloaded: heartbeats are read " + seconds_text(lag_) + " after they arrive"
                         : "was overloaded a moment ago";
  if (floor_ > core::Millis(0)) text += "; ranks are asked for one heartbeat in " + seconds_text(floor_);
  return text + "; a rank that stops answering is found later, and no rank is called silent for it";
}

}  // namespace ranks
