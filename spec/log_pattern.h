#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace re2 {
class RE2;
}

namespace spec {

/// The name that [report] log has for a step's number.
inline constexpr std::string_view kStepPattern = "step";
/// The names for the step from which an attempt goes on, and for how many steps the training has in all.
inline constexpr std::string_view kResumedPattern = "resumed", kTotalPattern = "total";
/// True if the name stands for a number of the run, and for no series.
inline constexpr bool is_of_the_run(std::string_view name) {
  return name == kStepPattern || name == kResumedPattern || name == kTotalPattern;
}
/// How an agent begins to say that patterns have found nothing in its rank's log. Their names follow, with commas.
inline constexpr std::string_view kNothingMatches = "report.log: no line of the log matches the pattern of ";
inline constexpr std::size_t kLongestPattern = 256;
inline constexpr std::size_t kMostPatterns = 32;

/// A pattern over the lines of a log: a regular expression of RE2, whose time grows with the line alone. Its first
/// group is what is looked for. musterd checks it at submission, and an agent uses it.
class LogPattern {
 public:
  /// A pattern with a problem finds nothing.
  explicit LogPattern(const std::string& pattern);
  ~LogPattern();
  LogPattern(LogPattern&&) noexcept;
  LogPattern& operator=(LogPattern&&) noexcept;

  /// The requirement that the pattern does not meet; empty: nothing is wrong with the pattern.
  const std::string& problem() const { return problem_; }
  /// The action that people can take about the problem.
  const std::string& remedy() const { return remedy_; }

  /// The first group at the pattern's first place in the line; nullopt: there is none.
  std::optional<std::string_view> find(std::string_view line) const;

 private:
  std::unique_ptr<re2::RE2> expression_;
  std::string problem_, remedy_;
};

}  // namespace spec
