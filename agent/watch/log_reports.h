#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace agent::watch
