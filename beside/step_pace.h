#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace beside {

/// How long a step takes, of steps whose times are known by looks alone. One look is the resolution of such a time, so
/// the pace is that of many looks, and it is not known before.
class StepPace {
 public:
  /// A time counts over so many looks, so it is right to a tenth.
  static constexpr std::int64_t kLooks = 20;

  /// A look at this moment has found `newest`, or no step. Milliseconds a step; 0: not known yet.
  double look(std::int64_t now_ms, std::optional<std::int64_t> newest) {
    if (last_look_ms_ > 0) longest_gap_ms_ = std::max(longest_gap_ms_, now_ms - last_look_ms_);
    last_look_ms_ = now_ms;
    if (!newest) return pace_;
    const auto elapsed = now_ms - since_ms_;
    if (!from_ || *newest < *from_ || elapsed < 0) {
      pace_ = 0;
    } else if (*newest == *from_ || elapsed < kLooks * longest_gap_ms_) {
      return pace_;
    } else {
      pace_ = static_cast<double>(elapsed) / static_cast<double>(*newest - *from_);
    }
    from_ = newest;
    since_ms_ = now_ms;
    longest_gap_ms_ = 0;
    return pace_;
  }

 private:
  std::optional<std::int64_t> from_;
  std::int64_t since_ms_ = 0, last_look_ms_ = 0, longest_gap_ms_ = 0;
  double pace_ = 0;
};

}  // namespace beside
