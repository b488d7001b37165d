#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/rank/reporter.h"
#include "agent/watch/report.h"

namespace agent::report {

/// Says to a reporter what the lines of one rank's report file mean, in the order of the file: what a line leaves out
/// follows from the lines before it. docs/report.md has the rules. Not thread-safe.
class Teller {
 public:
  /// Tells all but words().
  void tell(const watch::Report& report, rank::Reporter& to);
  /// What the program has said of itself up to now.
  const rank::ProgramWords& words() const { return words_; }
  /// The newest step that the program has told.
  std::optional<std::int64_t> newest_step() const {
    return last_step_ ? std::optional(last_step_->first) : std::nullopt;
  }

 private:
  void declare(const std::vector<spec::Series>& series, rank::Reporter& to);
  void step(const watch::Report& report, rank::Reporter& to);
  void enter(rank::Section section, rank::Reporter& to);
  void enter(const std::string& name, rank::Reporter& to);
  double step_ms_since_last(std::int64_t step, std::int64_t at_ms) const;

  std::vector<spec::Series> series_;
  rank::Section section_ = rank::Section::kInit;
  rank::ProgramWords words_;
  std::optional<std::pair<std::int64_t, std::int64_t>> last_step_;  // its number, and when it was done
};

}  // namespace agent::report
