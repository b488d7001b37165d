#include "agent/watch/log_reports.h"

#include <algorithm>

#include "agent/watch/last_words.h"
#include "agent/watch/plain_number.h"

namespace agent::watch {

LogReports::LogReports(const std::map<std::string, std::string>& patterns) {
  for (const auto& [name, pattern] : patterns) {
    unmatched_.insert(name);
    if (name == spec::kStepPattern) {
      step_pattern_.emplace(pattern);
    } else if (name == spec::kResumedPattern) {
      resumed_pattern_.emplace(pattern);
    } else if (name == spec::kTotalPattern) {
      total_pattern_.emplace(pattern);
    } else {
      patterns_.emplace_back(name, spec::LogPattern(pattern));
    }
  }
}

std::optional<Report> LogReports::take(std::string_view line) {
  Report report;
  report.resumed = read_resumed(line);
  report.total_steps = read_total(line);
  report.step = read_values(line);
  if (!report.resumed && !report.total_steps && !report.step) return std::nullopt;
  return report;
}

/// Once: a program may say again what it had said at its start. Steps that are counted go on from there.
std::optional<std::int64_t> LogReports::read_resumed(std::string_view line) {
  if (!resumed_pattern_ || resumed_) return std::nullopt;
  resumed_ = count_of(spec::kResumedPattern, *resumed_pattern_, line);
  return resumed_;
}

std::optional<std::int64_t> LogReports::read_total(std::string_view line) {
  if (!total_pattern_) return std::nullopt;
  const auto total = count_of(spec::kTotalPattern, *total_pattern_, line);
  if (!total || total == total_) return std::nullopt;
  total_ = total;
  return total;
}

std::optional<ReportedStep> LogReports::read_values(std::string_view line) {
  const bool is_new_step = step_pattern_ && read_step(line);
  auto values = values_of(line);
  const auto is_told = [this](const auto& value) { return told_.contains(value.first); };
  if (!step_pattern_ && !values.empty() && (!step_ || std::ranges::any_of(values, is_told))) {
    begin_step(step_.value_or(resumed_.value_or(0)) + 1);
  }
  if (!step_) return std::nullopt;
  std::erase_if(values, is_told);
  if (values.empty() && !is_new_step) return std::nullopt;
  for (const auto& [name, value] : values) told_.insert(name);
  ReportedStep step;
  step.step = *step_;
  step.values = std::move(values);
  return step;
}

LogReports::Values LogReports::values_of(std::string_view line) {
  Values values;
  for (const auto& [name, pattern] : patterns_) {
    const auto found = pattern.find(line);
    if (!found) continue;
    if (!unmatched_.empty()) unmatched_.erase(name);
    if (const auto value = plain_number(*found)) {
      values.emplace_back(name, *value);
    } else {
      complain(name, *found);
    }
  }
  return values;
}

/// True: the line begins another step.
bool LogReports::read_step(std::string_view line) {
  const auto step = count_of(spec::kStepPattern, *step_pattern_, line);
  if (!step || step == step_) return false;
  begin_step(*step);
  return true;
}

std::optional<std::int64_t> LogReports::count_of(std::string_view name, const spec::LogPattern& pattern,
                                                 std::string_view line) {
  const auto found = pattern.find(line);
  if (!found) return std::nullopt;
  if (!unmatched_.empty()) unmatched_.erase(std::string(name));
  const auto count = plain_count(*found);
  if (!count) complain(name, *found);
  return count;
}

std::string LogReports::unmatched() const {
  std::string names;
  for (const auto& name : unmatched_) {
    if (name != spec::kResumedPattern) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

void LogReports::begin_step(std::int64_t step) {
  step_ = step;
  told_.clear();
}

void LogReports::complain(std::string_view name, std::string_view found) {
  if (!complaint_.empty()) return;
  complaint_ = "report.log." + std::string(name) + " finds \"" + fit_for_a_sentence(found.substr(0, 60)) +
               "\" in the log, which is no " + (spec::is_of_the_run(name) ? "whole number" : "number");
}

}  // namespace agent::watch
