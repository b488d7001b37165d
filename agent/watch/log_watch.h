#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/watch/log_reports.h"
#include "agent/watch/report.h"

namespace agent::watch {

/// How long a step takes, of steps whose times are known by looks alone. One look is the resolution of such a time, so
/// the pace is that of many looks, and it is not known before. A pause between two steps, such as an evaluation, is no
/// time of a step.
class StepPace {
 public:
  /// A time counts over so many looks, so it is right to a tenth.
  static constexpr std::int64_t kLooks = 20;
  /// A stretch between two looks that found steps is a pause if its steps took so many times as long as is usual.
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
    if (stretches_.size() == kMostStretches) begin();
    stretches_.push_back(found);
    if (is_slower_now()) stretches_.erase(stretches_.begin(), stretches_.end() - kNewPace);
    const auto usual = without_pauses();
    // One alone may be a pause.
    if (stretches_.size() < 2 || usual.ms < kLooks * longest_gap_ms_) return pace_;
    pace_ = usual.pace();
    begin();
    return pace_;
  }

 private:
  struct Stretch {
    std::int64_t ms = 0, steps = 0;
    double pace() const { return static_cast<double>(ms) / static_cast<double>(steps); }
  };

  void begin() {
    stretches_.clear();
    longest_gap_ms_ = 0;
  }

  /// The pace of the median step.
  double usual_pace() const {
    auto sorted = stretches_;
    std::ranges::sort(sorted, {}, &Stretch::pace);
    std::int64_t steps = 0, before = 0;
    for (const auto& one : sorted) steps += one.steps;
    const auto median = std::ranges::find_if(sorted, [&](const Stretch& one) {
      before += one.steps;
      return 2 * before >= steps;
    });
    return median->pace();
  }
  /// Pauses come one at a time. Several in a row are steps that take longer from now on.
  bool is_slower_now() const {
    if (std::ssize(stretches_) <= kNewPace) return false;
    const auto limit = kPause * usual_pace();
    return std::all_of(stretches_.end() - kNewPace, stretches_.end(),
                       [&](const Stretch& one) { return one.pace() > limit; });
  }
  /// The stretches together, but those that took too long for their steps.
  Stretch without_pauses() const {
    const auto limit = kPause * usual_pace();
    Stretch sum;
    for (const auto& one : stretches_) {
      if (one.pace() <= limit) sum = {sum.ms + one.ms, sum.steps + one.steps};
    }
    return sum;
  }

  static constexpr std::ptrdiff_t kNewPace = 3;
  static constexpr std::size_t kMostStretches = 1024;

  std::optional<std::int64_t> newest_;
  std::int64_t found_at_ms_ = 0, last_look_ms_ = 0, longest_gap_ms_ = 0;
  std::vector<Stretch> stretches_;  // since the pace was told last
  double pace_ = 0;
};

/// Follows a rank's log and reports what patterns find in it. All of it is read, in pieces: what a look leaves waits in
/// the file for the next one.
class LogWatch : public ReportSource {
 public:
  LogWatch(std::filesystem::path file, const std::map<std::string, std::string>& patterns);

  Found look(const Moment& moment) override;
  std::string unread() const override;

  static constexpr std::size_t kMostAtOnce = 512 << 10;

 private:
  void begin_anew();
  void set_times(std::vector<Report>& reports, std::int64_t now_ms) const;
  void set_pace(std::vector<Report>& reports, std::int64_t now_ms);

  const std::filesystem::path file_;
  PlainLines lines_;
  LogReports reports_;
  StepPace pace_;
  std::uint64_t offset_ = 0;
  std::atomic<std::uint64_t> unread_bytes_ = 0;
  std::int64_t last_look_ms_ = 0;  // 0: there was none
};

}  // namespace agent::watch
