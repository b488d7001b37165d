#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/watch/report.h"
#include "spec/log_pattern.h"

namespace agent::watch {

/// A number as people and programs print it: "2.31,", "1e-4", "85.2%", "+3", "1,234.5", "1_200", "1.2k", "350M",
/// "tensor(2.31,", "[0.5]", a minus of Unicode. NaN for the words that say so, and for infinity. nullopt: it is none.
/// "2,31" is none: a comma is the sign between thousands.
std::optional<double> plain_number(std::string_view text);

/// Reads a count in the same way: "1,200", "120/9000" and "12k" are 1200, 120 and 12000. "1,5" is none, and neither are
/// "0,120" and "12,34": a comma stands between groups of three.
std::optional<std::int64_t> plain_count(std::string_view text);

/// Cuts what a program writes for a terminal into lines of plain text. "\n", "\r" and "\b" end a line, so each state of
/// a progress bar is a line of its own. Colours and other commands to a terminal are left out, and so are empty lines.
class PlainLines {
 public:
  using Take = std::function<void(std::string_view line)>;

  /// Hands out each line that ends in these bytes, which follow those of the last call.
  void feed(std::string_view bytes, const Take& take);
  /// Hands out a last line without an end.
  void finish(const Take& take);

  /// The most bytes that are kept of a longer line.
  static constexpr std::size_t kLongest = 16 << 10;

 private:
  enum class State { kText, kEscape, kCommand, kTitle, kTitleEscape };
  void end_line(const Take& take);
  State after(char c) const;

  State state_ = State::kText;
  std::size_t command_bytes_ = 0;
  std::string line_;
};

/// Makes reports of the lines of a log, by the patterns of [report] log.
///
/// The pattern "step" tells the step of its line and of the lines that follow, up to its next match. Values before its
/// first match are of no step and left out. Without that pattern the steps are counted from 1: a step ends where a
/// series comes again. Of several values of one series at one step the first counts.
///
/// The pattern "resumed" tells from which step the attempt goes on: its first match counts. Steps that are counted go
/// on from there. The pattern "total" tells how many steps there are in all.
class LogReports {
 public:
  explicit LogReports(const std::map<std::string, std::string>& patterns);

  /// The report that one line makes; nullopt: nothing new.
  std::optional<Report> take(std::string_view line);

  /// The names whose patterns have matched no line, with commas; empty: all have. A first attempt goes on from nowhere,
  /// so "resumed" is none of them.
  std::string unmatched() const;
  /// The complaint about the first match that is no number; empty: none.
  const std::string& first_complaint() const { return complaint_; }

 private:
  using Values = std::vector<std::pair<std::string, double>>;
  /// The values on the line, by their series.
  Values values_of(std::string_view line);
  std::optional<std::int64_t> read_resumed(std::string_view line);
  std::optional<std::int64_t> read_total(std::string_view line);
  std::optional<ReportedStep> read_values(std::string_view line);
  bool read_step(std::string_view line);
  /// The count that the pattern of that name finds; nullopt: none, or no whole number.
  std::optional<std::int64_t> count_of(std::string_view name, const spec::LogPattern& pattern, std::string_view line);
  void begin_step(std::int64_t step);
  void complain(std::string_view name, std::string_view found);

  std::optional<spec::LogPattern> step_pattern_, resumed_pattern_, total_pattern_;
  std::vector<std::pair<std::string, spec::LogPattern>> patterns_;
  std::optional<std::int64_t> step_, resumed_, total_;
  std::set<std::string> unmatched_;
  std::set<std::string> told_;  // series with a value at step_
  std::string complaint_;
};

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
