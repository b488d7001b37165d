#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "spec/series.h"

namespace agent::watch {

/// A checkpoint that a program has written.
struct ReportedCheckpoint {
  std::string path;
  std::int64_t step = 0;
  std::optional<std::int64_t> bytes;
  std::optional<double> took_ms;
  bool operator==(const ReportedCheckpoint&) const = default;
};

/// Settings of a run beyond so many bytes, as JSON, are not kept.
inline constexpr std::size_t kMostConfig = 32 << 10;

/// Why a program ends, in its own words.
struct ReportedError {
  std::string type;  // "ValueError"; empty: not told
  std::string message;
  std::string trace;
  bool operator==(const ReportedError&) const = default;
};

/// One finished step.
struct ReportedStep {
  std::int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;  // series and value; NaN: no number
  std::optional<double> step_ms;
  std::optional<std::int64_t> memory_bytes, memory_peak_bytes, bytes_communicated;
  bool operator==(const ReportedStep&) const = default;
};

/// What one line of a report file says. docs/report.md is the contract.
struct Report {
  std::optional<ReportedStep> step;
  std::optional<std::int64_t> total_steps;
  std::optional<std::string> config;  // a JSON object
  std::vector<spec::Series> series;
  std::optional<std::int64_t> resumed;
  std::optional<ReportedCheckpoint> checkpoint;
  std::optional<std::string> section, status;
  std::optional<ReportedError> error;
  std::optional<std::int64_t> at_ms;  // since 1970
  /// What is wrong with a part of the line; the other parts count. Empty: nothing.
  std::string complaint;
  bool operator==(const Report&) const = default;
};

/// Why a line cannot be read at all.
struct BadLine {
  std::string why;
};

/// `line` without its newline. NaN, Infinity and -Infinity, which Python writes, are read as null. A key with a value
/// of another type than the contract's is a part that is wrong; an unknown key without a number is ignored.
std::variant<Report, BadLine> parse_report(std::string_view line);

}  // namespace agent::watch
