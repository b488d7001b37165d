#include "controller/common/hearing.h"

#include <utility>

namespace common {

bool Hearing::was_deaf() {
  const bool stuck = stuck_since().has_value();
  std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  const bool late = last_round_ && now - *last_round_ > kLate;
  const bool stood_still = std::exchange(stood_still_, false);
  last_round_ = now;
  return late || stuck || stood_still;
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

void Reading::attach(std::function<void(std::uint64_t)> send) {
  const std::lock_guard lock(send_mutex_);
  send_ = std::move(send);
}

void Reading::detach() {
  const std::lock_guard lock(send_mutex_);
  send_ = nullptr;
  lost();
}

void Reading::ask() {
  const std::lock_guard sending(send_mutex_);
  if (!send_) return;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (under_way_) return;
    under_way_ = true;
    number = ++number_;
    asked_at_ = clock_.monotonic();
    // Nothing is known of what arrived before the first word, and nobody is judged by that.
    if (!read_until_) read_until_ = asked_at_;
  }
  send_(number);
}

void Reading::arrived(std::uint64_t n) {
  const std::lock_guard lock(mutex_);
  if (!under_way_ || n != number_) return;
  under_way_ = false;
  read_until_ = asked_at_;
  lag_ = clock_.monotonic() - *asked_at_;
}

void Reading::lost() {
  const std::lock_guard lock(mutex_);
  under_way_ = false;
  read_until_.reset();
  lag_ = core::Millis(0);
}

std::optional<core::Millis> Reading::asked_ago() const {
  const std::lock_guard lock(mutex_);
  if (!asked_at_) return std::nullopt;
  return clock_.monotonic() - *asked_at_;
}

}  // namespace common
