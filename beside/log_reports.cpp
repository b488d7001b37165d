#include "beside/log_reports.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "beside/last_words.h"

namespace beside {
namespace {

constexpr double kLargestStep = 9e15;  // beyond, a double is no exact count

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && (is_blank(text.front()) || text.front() == '+')) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// NaN for the words that say so, and for infinity. A mark behind the number is no part of it.
std::optional<double> number_of(std::string_view found) {
  const auto text = trimmed(found);
  double value = 0;
  const auto* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) return std::numeric_limits<double>::quiet_NaN();
  if (error != std::errc() || std::string_view(stop, end).find_first_not_of(".,;:%") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::isfinite(value) ? value : std::numeric_limits<double>::quiet_NaN();
}

/// "1,200" and "1_200" are 1200.
std::optional<std::int64_t> step_of(std::string_view found) {
  std::string digits(found);
  std::erase_if(digits, [](char c) { return c == ',' || c == '_'; });
  const auto value = number_of(digits);
  if (!value || !(*value >= 0 && *value <= kLargestStep && *value == std::floor(*value))) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

}  // namespace

LogReports::LogReports(const std::map<std::string, std::string>& patterns) {
  for (const auto& [name, pattern] : patterns) {
    unmatched_.insert(name);
    if (name == contract::kStepPattern) {
      step_pattern_.emplace(pattern);
    } else {
      patterns_.emplace_back(name, contract::LogPattern(pattern));
    }
  }
}

std::optional<Report> LogReports::take(std::string_view line) {
  const bool is_new_step = step_pattern_ && read_step(line);
  auto values = values_of(line);
  const auto is_told = [this](const auto& value) { return told_.contains(value.first); };
  if (!step_pattern_ && !values.empty() && (!step_ || std::ranges::any_of(values, is_told))) {
    begin_step(step_.value_or(0) + 1);
  }
  if (!step_) return std::nullopt;
  std::erase_if(values, is_told);
  if (values.empty() && !is_new_step) return std::nullopt;
  for (const auto& [name, value] : values) told_.insert(name);
  Report report;
  report.step.emplace();
  report.step->step = *step_;
  report.step->values = std::move(values);
  return report;
}

LogReports::Values LogReports::values_of(std::string_view line) {
  Values values;
  for (const auto& [name, pattern] : patterns_) {
    const auto found = pattern.find(line);
    if (!found) continue;
    if (!unmatched_.empty()) unmatched_.erase(name);
    if (const auto value = number_of(*found)) {
      values.emplace_back(name, *value);
    } else {
      complain(name, *found);
    }
  }
  return values;
}

/// True: the line begins another step.
bool LogReports::read_step(std::string_view line) {
  const auto found = step_pattern_->find(line);
  if (!found) return false;
  if (!unmatched_.empty()) unmatched_.erase(std::string(contract::kStepPattern));
  const auto step = step_of(*found);
  if (!step) complain(contract::kStepPattern, *found);
  if (!step || step == step_) return false;
  begin_step(*step);
  return true;
}

std::string LogReports::unmatched() const {
  std::string names;
  for (const auto& name : unmatched_) names += (names.empty() ? "" : ", ") + name;
  return names;
}

void LogReports::begin_step(std::int64_t step) {
  step_ = step;
  told_.clear();
}

void LogReports::complain(std::string_view name, std::string_view found) {
  if (!complaint_.empty()) return;
  complaint_ = "report.log." + std::string(name) + " finds \"" + fit_for_a_sentence(found.substr(0, 60)) +
               "\" in the log, which is no " + (name == contract::kStepPattern ? "whole number" : "number");
}

}  // namespace beside
