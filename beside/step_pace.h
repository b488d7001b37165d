#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace beside {

/// How long a step takes, of steps whose times are known by looks alone. One look is the resolution of such a time, so
/// the pace is that of many looks, and it is not known before. A pause between two steps, such as an evaluation, is no
/// time of a step.
class StepPace {
 public:
  /// A time counts over so many looks, so it is right to a tenth.
  static constexpr std::int64_t kLooks = 20;
  /// A stretch between two looks that found steps is a pause if its steps took so many times as long as the others.
  static constexpr double kPause = 4;

  /// A look at this moment has found `newest`, or no step. Milliseconds a step; 0: not known yet.
  double look(std::int64_t now_ms, std::optional<std::int64_t> newest) {
    if (last_look_ms_ > 0) longest_gap_ms_ = std::max(longest_gap_ms_, now_ms - last_look_ms_);
    last_look_ms_ = now_ms;
    if (!newest || newest == newest_) return pace_;
    const Stretch found{now_ms - found_at_ms_, *newest - newest_.value_or(0)};
    const bool begins = !newest_ || found.steps < 0 || found.ms < 0;
    newest_ = newest;
    found_at_ms_ = now_ms;
    if (begins) {
      pace_ = 0;
      begin();
      return pace_;
    }
    all_ = {all_.ms + found.ms, all_.steps + found.steps};
    if (slowest_.steps == 0 || found.pace() > slowest_.pace()) slowest_ = found;
    const Stretch others{all_.ms - slowest_.ms, all_.steps - slowest_.steps};
    const auto& counts = others.steps > 0 && slowest_.pace() > kPause * others.pace() ? others : all_;
    if (counts.ms < kLooks * longest_gap_ms_) return pace_;
    pace_ = counts.pace();
    begin();
    return pace_;
  }

 private:
  struct Stretch {
    std::int64_t ms = 0, steps = 0;
    double pace() const { return static_cast<double>(ms) / static_cast<double>(steps); }
  };

  void begin() {
    all_ = slowest_ = {};
    longest_gap_ms_ = 0;
  }

  std::optional<std::int64_t> newest_;
  std::int64_t found_at_ms_ = 0, last_look_ms_ = 0, longest_gap_ms_ = 0;
  Stretch all_, slowest_;  // since the pace was told last
  double pace_ = 0;
};

}  // namespace beside
