#include "base/hearing.h"

#include <utility>

namespace base {

bool Hearing::was_deaf() {
  const bool stuck = stuck_since().has_value();
  std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  const bool late = last_round_ && now - *last_round_ > kLate;
  const bool stood_still = std::exchange(stood_still_, false);
  last_round_ = now;
  return late || stuck || stood_still;
}

std::optional<core::Millis> Hearing::written_at() const {
  std::lock_guard lock(mutex_);
  return written_at_;
}

core::Millis Hearing::begin() {
  std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  under_way_.insert(now);
  return now;
}

void Hearing::end(core::Millis begun) {
  std::lock_guard lock(mutex_);
  under_way_.erase(under_way_.find(begun));
  written_at_ = clock_.monotonic();
  if (*written_at_ - begun > kStuckAfter) stood_still_ = true;
}

std::optional<core::Millis> Hearing::under_way_longer_than(core::Millis limit) const {
  std::lock_guard lock(mutex_);
  if (under_way_.empty() || clock_.monotonic() - *under_way_.begin() <= limit) return std::nullopt;
  return *under_way_.begin();
}

}  // namespace base
